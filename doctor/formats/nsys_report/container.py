"""The file around everything: a line of text, sections, a directory of the sections, an end mark.

A recording that was cut short has neither directory nor end mark. Then only the section that matters is looked for by
its own mark, and the container says that it is not complete.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from doctor.errors import DamagedEvidenceError, UnknownEvidenceError
from doctor.formats.nsys_report.wire import Message, WireError

FILE_MARK = b"NVIDIA Tegra Profiler Report "
END_MARK = b"U3w[END]"
STREAM_MARK = b"QDTEXT00"
TRAILER_BYTES = 8 + len(END_MARK)
MAX_HEAD_BYTES = 256
MAX_DIRECTORY_BYTES = 1 << 20
_SEARCH_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
_LEAST_PADDING_BYTES = 4096
_MOST_EXTENTS = 100_000

RAW_SAMPLING_DATA = "Raw Sampling Data"
SAMPLING_DATA_OFFSETS = "Sampling Data Offsets"
ANALYSIS_OPTIONS = "Analysis Options Data"
AGENT_ACTIVITY = "Agent activity list"
TIME_CONVERSION = "Time Conversion Data"
UI_DATA = "UI Data"


@dataclass(frozen=True)
class Section:
    """A named byte range of the file."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Container:
    """What the directory says.

    Attributes:
        head: the line of text, with its full stop.
        build_id: what follows the mark in it: the recorder's version since 2023.3, `1` or a number before.
        sections: in the order of the directory; only the event stream where there is no directory.
        file_size: bytes, without zeros behind the last one that says something.
        is_complete: false where directory or end mark are missing.
    """

    head: bytes
    build_id: str
    sections: tuple[Section, ...]
    file_size: int
    is_complete: bool

    def section(self, name: str) -> Section | None:
        """The section of that name, or None."""
        return next((section for section in self.sections if section.name == name), None)


def is_report(head: bytes) -> bool:
    """Whether a file that starts with these bytes is a native report."""
    return head.startswith(FILE_MARK)


def read_container(file: BinaryIO, path: Path) -> Container:
    """Read head and directory.

    Raises:
        UnknownEvidenceError: the file does not start as a report does.
        DamagedEvidenceError: it does, but no event stream can be found in it.
    """
    size = end_of_data(file)
    file.seek(0)
    start = file.read(MAX_HEAD_BYTES)
    if not is_report(start):
        raise UnknownEvidenceError(f"{path} is no Nsight Systems report: its first bytes are not those of one")
    stop = start.find(b".", len(FILE_MARK))
    if stop < 0:
        raise DamagedEvidenceError(f"{path} is cut or damaged: the first line of the report has no end")
    head = start[: stop + 1]
    empty = Container(head, head[len(FILE_MARK) : -1].decode("ascii", "replace"), (), size, is_complete=True)
    directory = _read_directory(file, size)
    if directory is None:
        return replace(empty, sections=(_find_stream(file, path, len(head), size),), is_complete=False)
    container = replace(empty, sections=directory)
    if container.section(RAW_SAMPLING_DATA) is None:
        raise DamagedEvidenceError(f"{path} has no section {RAW_SAMPLING_DATA!r}: it holds no recorded events")
    return container


def end_of_data(file: BinaryIO) -> int:
    """Where a file ends that may be padded with zeros, as disks and copies pad them that were interrupted.

    Holes of a sparse file are not read; fewer zeros than a page of any file system are no padding.
    """
    size = file.seek(0, os.SEEK_END)
    end = min(size, _end_of_last_extent(file, size))
    while end > 0:
        begin = max(end - _PIECE_BYTES, 0)
        file.seek(begin)
        kept = file.read(end - begin).rstrip(b"\x00")
        end = begin + len(kept)
        if kept:
            break
    return end if size - end >= _LEAST_PADDING_BYTES else size


def _end_of_last_extent(file: BinaryIO, size: int) -> int:
    """End of what a sparse file has written; the whole size where the system does not tell."""
    end = 0
    try:
        for _ in range(_MOST_EXTENTS):
            end = os.lseek(file.fileno(), os.lseek(file.fileno(), end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        return end if error.errno == errno.ENXIO else size
    return size


def read_section(file: BinaryIO, section: Section, max_bytes: int) -> bytes:
    """The bytes of a section, at most `max_bytes` of them."""
    file.seek(section.offset)
    return file.read(min(section.size, max_bytes))


def _read_directory(file: BinaryIO, size: int) -> tuple[Section, ...] | None:
    if size < TRAILER_BYTES:
        return None
    file.seek(size - TRAILER_BYTES)
    trailer = file.read(TRAILER_BYTES)
    offset = int.from_bytes(trailer[:8], "little")
    end = size - TRAILER_BYTES
    if trailer[8:] != END_MARK or not 0 < offset <= end or end - offset > MAX_DIRECTORY_BYTES:
        return None
    file.seek(offset)
    try:
        entries = Message(file.read(end - offset)).messages(1)
        sections = [(entry.text(1), entry.integer(2), entry.integer(3) or 0) for entry in entries]
    except WireError:
        return None
    found = [Section(name, at, length) for name, at, length in sections if name is not None and at is not None]
    if len(found) < len(sections) or any(not 0 <= part.offset <= part.offset + part.size <= offset for part in found):
        return None
    return tuple(found)


def _find_stream(file: BinaryIO, path: Path, start: int, size: int) -> Section:
    file.seek(start)
    found = file.read(_SEARCH_BYTES).find(STREAM_MARK)
    if found < 0:
        raise DamagedEvidenceError(f"{path} is cut before its first event: nothing in it can be read")
    return Section(RAW_SAMPLING_DATA, start + found, size - start - found)
