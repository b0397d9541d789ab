"""The first 100 bytes of an SQLite file: if it is whole, how it writes texts; a copy without a broken last page."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"SQLite format 3\x00"

_HEADER_BYTES = 100
_PAGE_SIZE_AT, _PAGE_COUNT_AT = slice(16, 18), slice(28, 32)
_CHANGES_AT, _VALID_FOR_AT = slice(24, 28), slice(92, 96)
_ENCODING_AT = slice(56, 60)
_UTF_8 = 1
_LARGEST_PAGE = 65536


@dataclass(frozen=True)
class SqliteHeader:
    """Sizes that an SQLite file declares and has.

    Attributes:
        page_bytes: size of a page.
        declared_bytes: size of the whole file; None where the header's number is out of date.
        size_bytes: size on disk.
        is_utf8: its texts are in UTF-8, not in UTF-16.
    """

    page_bytes: int
    declared_bytes: int | None
    size_bytes: int
    is_utf8: bool

    @property
    def is_cut(self) -> bool:
        """The file is shorter than it says."""
        return self.declared_bytes is not None and self.size_bytes < self.declared_bytes


def read_header(path: Path) -> SqliteHeader:
    """Read the header of an SQLite file."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    page_bytes = int.from_bytes(header[_PAGE_SIZE_AT], "big")
    page_bytes = _LARGEST_PAGE if page_bytes == 1 else max(page_bytes, 1)
    is_current = header[_CHANGES_AT] == header[_VALID_FOR_AT]
    declared = int.from_bytes(header[_PAGE_COUNT_AT], "big") * page_bytes
    is_utf8 = int.from_bytes(header[_ENCODING_AT], "big") == _UTF_8
    return SqliteHeader(page_bytes, declared if is_current and declared else None, path.stat().st_size, is_utf8)


@contextmanager
def with_whole_pages(path: Path, header: SqliteHeader) -> Iterator[Path]:
    """Give the file itself, or a temporary copy without the part of a page that a cut left at its end.

    SQLite fills that page up with zeros and reads rows of nonsense from it.
    """
    broken_bytes = header.size_bytes % header.page_bytes
    if not (header.is_cut and broken_bytes):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        copy = Path(folder) / "whole-pages"
        shutil.copyfile(path, copy)
        with copy.open("r+b") as file:
            file.truncate(header.size_bytes - broken_bytes)
        yield copy
