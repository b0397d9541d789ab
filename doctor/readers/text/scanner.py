"""What reads one kind of evidence out of a text, line by line.

A text is often a paste: a log with an out-of-memory message in it and a table of `nvidia-smi` behind it. Every scanner
looks at the same lines and takes what is its own; each gives rows of a source of its own kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from doctor.case import schema
from doctor.case.batch import SourceFacts, TableBatch


class Scanner(Protocol):
    """One kind of evidence within a text; made anew for every text."""

    kind: str
    """Evidence kind of the contract, such as `oom-text`."""

    clues: tuple[str, ...]
    """Literal substrings: a line that holds none of them is not shown, unless the scanner is open."""

    @property
    def is_open(self) -> bool:
        """True inside a block of several lines: every next line is shown."""
        ...

    def line(self, number: int, text: str) -> None:
        """Look at one line.

        Args:
            number: place in the text, from 1.
            text: without line end, colour codes and undecodable bytes; at most 64 KiB.
        """
        ...

    def drain(self) -> Iterator[TableBatch]:
        """Give the rows found since the last call, so that memory stays bounded; called every few thousand lines."""
        ...

    def facts(self) -> SourceFacts | None:
        """What is known of this kind of evidence once the text has ended; None where the text holds none.

        Closes an open block first. Called before the last `drain`.
        """
        ...


@runtime_checkable
class LedScanner(Scanner, Protocol):
    """A scanner that may look back: what a table or a result is of stands in the lines above it."""

    lead_lines: int
    """How many lines it may ask for."""

    def lead(self, look_back: Callable[[], Sequence[str]]) -> None:
        """Called before `line` for every line with a clue, unless the scanner is open.

        Args:
            look_back: gives the lines above, nearest last; fewer than `lead_lines` where a piece of the text begins.
        """
        ...


@runtime_checkable
class BesideScanner(Scanner, Protocol):
    """A scanner of what is no evidence alone: its facts count where another scanner has found something."""

    is_beside: bool


def batch_of(table: str, rows: Iterable[Mapping[str, Any]], kind: str) -> TableBatch:
    """Rows of a case table as a batch; columns that a row lacks are NULL.

    Raises:
        ValueError: a row has a column that the table lacks.
    """
    listed = list(rows)
    declared = schema.metadata.tables[table].columns
    names = list(dict.fromkeys(name for row in listed for name in row))
    unknown = [name for name in names if name not in declared and f"{name}_id" not in declared]
    if unknown:
        raise ValueError(f"no column {', '.join(unknown)} in table {table}")
    return TableBatch(table, pa.table({name: [row.get(name) for row in listed] for name in names}), kind)


def emptied(rows_of: Mapping[str, list[dict[str, Any]]], kind: str) -> Iterator[TableBatch]:
    """The rows gathered for each table as batches; the lists are empty afterwards."""
    for table, rows in rows_of.items():
        if rows:
            yield batch_of(table, rows, kind)
            rows.clear()
