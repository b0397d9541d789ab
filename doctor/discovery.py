"""What the user named (files, folders, patterns, standard input) as a list of evidence files."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from doctor.case.store import is_case_file
from doctor.errors import EvidenceError, EvidenceTooLargeError, UnknownEvidenceError, UsageError
from doctor.readers import registry
from doctor.units import format_bytes

STANDARD_INPUT = "-"
_MOST_FILES_IN_A_FOLDER = 10_000
_MOST_BYTES_OF_STANDARD_INPUT = 64 * 2**30
_PIECE_BYTES = 4 * 2**20


@dataclass(frozen=True)
class EvidencePath:
    """One file or folder that a reader knows.

    Attributes:
        path: where it lies.
        shown: as the user named it.
    """

    path: Path
    shown: str


@dataclass(frozen=True)
class Discovered:
    """Everything that was named.

    Attributes:
        evidence: to be read, without repetition, in the order named; inside a folder by name.
        skipped: files inside named folders that no reader knows.
    """

    evidence: tuple[EvidencePath, ...]
    skipped: tuple[str, ...]


@contextmanager
def discovered(names: Iterable[str]) -> Iterator[Discovered]:
    """Find the evidence behind the names; standard input (`-`) is kept in a file as long as the context lives.

    A folder gives every file in it, at any depth, that a reader knows, unless the folder itself is evidence (an export
    of one file per table). A file named by itself must be evidence. A name that does not exist is tried as a pattern,
    which gives what it matches as a folder gives what it holds.

    Raises:
        UsageError: a name matches nothing, or standard input is a terminal or empty.
        UnknownEvidenceError: a named file is not evidence, or a named folder holds none.
        EvidenceTooLargeError: a folder holds too many files to look at, or standard input is over the bound.
    """
    named = tuple(dict.fromkeys(names))
    if STANDARD_INPUT not in named:
        yield _discover(named, None)
        return
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        spooled = Path(folder, "standard-input")
        _spool(spooled)
        try:
            yield _discover(named, spooled)
        except EvidenceError as error:  # the user knows no temporary file
            raise type(error)(error.message.replace(str(spooled), "standard input")) from error


def _discover(names: Iterable[str], spooled: Path | None) -> Discovered:
    found: dict[Path, EvidencePath] = {}
    skipped: list[str] = []
    for name in names:
        if name == STANDARD_INPUT and spooled is not None:
            entries = [EvidencePath(_known(spooled), name)]
        else:
            entries, unknown = _named(name)
            skipped.extend(unknown)
        for entry in entries:
            found.setdefault(entry.path.resolve(), entry)
    return Discovered(tuple(found.values()), tuple(skipped))


def _named(name: str) -> tuple[list[EvidencePath], list[str]]:
    path = Path(name)
    if not path.exists():
        known, unknown = _matching(name)
    elif path.is_dir() and not registry.knows(path):
        known, unknown = _inside(path)
    else:
        known, unknown = [_known(path)], []
    return [EvidencePath(path, str(path)) for path in known], [str(path) for path in unknown]


def _known(path: Path) -> Path:
    if not is_case_file(path):
        registry.reader_for(path)  # names the problem before anything is read
    return path


def _matching(pattern: str) -> tuple[list[Path], list[Path]]:
    if not glob.has_magic(pattern):
        raise UsageError(f"there is no file or folder {pattern}")
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob refuses absolute patterns
    if not matches:
        raise UsageError(f"nothing matches {pattern}")
    known, unknown = _sorted_out(entry for match in matches for entry in _files(Path(match)))
    if not known:
        raise UnknownEvidenceError(f"nothing that matches {pattern} is evidence that doctor reads")
    return known, unknown


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir() and not registry.knows(path):
        yield from _walk(path)
    else:
        yield path


def _inside(folder: Path) -> tuple[list[Path], list[Path]]:
    known, unknown = _sorted_out(_walk(folder))
    if not known:
        looked_at = f"{len(unknown)} files looked at" if unknown else "it is empty"
        raise UnknownEvidenceError(f"{folder} holds no evidence that doctor reads ({looked_at})")
    return known, unknown


def _sorted_out(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """The paths that a reader knows, and the others."""
    known: list[Path] = []
    unknown: list[Path] = []
    for path in paths:
        (known if registry.knows(path) else unknown).append(path)
    return known, unknown


def _walk(folder: Path) -> Iterator[Path]:
    """Files below the folder, by name; folders that are evidence themselves come whole; hidden ones are passed by."""
    count = 0
    for place, folders, files in os.walk(folder):
        here = Path(place)
        whole = [name for name in folders if registry.knows(here / name)]
        folders[:] = sorted(name for name in folders if name not in whole and not name.startswith("."))
        for name in sorted([*whole, *files]):
            if not name.startswith("."):
                count += 1
                if count > _MOST_FILES_IN_A_FOLDER:
                    raise EvidenceTooLargeError(
                        f"{folder} holds over {_MOST_FILES_IN_A_FOLDER} files: name the evidence itself"
                    )
                yield here / name


def _spool(target: Path) -> None:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("standard input is a terminal: pipe evidence into doctor, or name a file")
    done_bytes = 0
    try:
        with target.open("wb") as spooled:
            while piece := sys.stdin.buffer.read(_PIECE_BYTES):
                done_bytes += len(piece)
                if done_bytes > _MOST_BYTES_OF_STANDARD_INPUT:
                    raise EvidenceTooLargeError("standard input is over 64 GiB: name a file instead")
                spooled.write(piece)
    except OSError as error:
        free = shutil.disk_usage(target.parent).free
        raise EvidenceError(
            f"standard input cannot be kept in {target.parent} ({error.strerror}, {format_bytes(free)} free): "
            "name a file instead"
        ) from error
    if done_bytes == 0:
        raise UsageError("standard input is empty")
