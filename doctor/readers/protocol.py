"""What every reader is.

A reader knows one format and the schema of the case file; it knows no rule, no view and no other reader. It streams:
memory is bounded by
a batch, not by the file. It never guesses silently: what could not be read becomes a note in `SourceFacts`, and the
file is marked
incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.schema import Columns

Progress = Callable[[int, int], None]
"""Called now and then with (bytes done, bytes in all); all is 0 where it is not known."""


def no_progress(done_bytes: int, total_bytes: int) -> None:
    """Ignore progress."""


class Reader(Protocol):
    """One evidence format."""

    kind: str
    """Evidence kind of the contract, such as `nsys-report`."""

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell whether a file is of this format.

        Args:
            path: an existing file or folder.
            head: the first 64 KiB of the file after decompression; empty for a folder.
        """
        ...

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield the file's rows, then one `SourceFacts`; a text of several kinds of evidence gives one a kind.

        Args:
            path: the file itself; where the user's file was compressed and the format needs random access, an unpacked
                temporary copy.
            progress: called as bytes are consumed.

        Raises:
            EvidenceError: nothing at all can be read; the message says what is wrong and what to do.
        """
        ...


@runtime_checkable
class ColumnReader(Reader, Protocol):
    """A format in which a column that nobody wants need not be read."""

    def read_without(self, path: Path, progress: Progress, left_out: Columns) -> Iterator[TableBatch | SourceFacts]:
        """Yield the same as `read`, less columns of the case; some may come nevertheless.

        Raises:
            EvidenceError: as `read` does.
        """
        ...
