"""What the user named (files, folders, patterns, standard input) as a list of evidence files."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from doctor.case.store import is_case_file
from doctor.errors import (
    EvidenceError,
    EvidenceTooLargeError,
    NoEvidenceLeftError,
    UnknownEvidenceError,
    UsageError,
)
from doctor.readers import registry
from doctor.units import format_bytes, format_counted

STANDARD_INPUT = "-"
_MOST_FILES_IN_A_FOLDER = 10_000
_MOST_BYTES_OF_STANDARD_INPUT = 64 * 2**30
_PIECE_BYTES = 4 * 2**20
_RECORDING_NAMES = (".nsys-rep", ".qdrep", ".pt.trace.json", ".pt.trace.json.gz")
_NEVER_EMPTY_NAMES = (*_RECORDING_NAMES, ".json", ".jsonl", ".gz", ".zst", ".sqlite", ".parquet", ".pickle", ".pkl")
_ABOUT_EVIDENCE = ("README", "LICENSE", "CHANGELOG", "expected.json", "doctor.toml", "pyproject.toml")
_NO_EVIDENCE_NAMES = (".md", ".rst", ".py", ".sh", ".ipynb", ".html", ".svg", ".png", ".pdf")


@dataclass(frozen=True)
class EvidencePath:
    """One file or folder that is to be read.

    Attributes:
        path: where it lies.
        shown: as the user named it, with an escape for each byte that is no UTF-8.
        fault: why it cannot be; None where a reader knows it.
    """

    path: Path
    shown: str
    fault: EvidenceError | None = None

    @classmethod
    def of(cls, path: Path, fault: EvidenceError | None = None) -> EvidencePath:
        """A file that is shown by its own path."""
        return cls(path, str(path).encode("utf-8", "backslashreplace").decode(), fault)


@dataclass(frozen=True)
class Discovered:
    """Everything that was named.

    Attributes:
        evidence: to be read, without repetition, in the order named, inside a folder by name; at least one of them
            without a fault.
        skipped: files inside named folders that no reader knows, but for those that are about the evidence: a README,
            the program that was recorded, what `doctor score` expects.
    """

    evidence: tuple[EvidencePath, ...]
    skipped: tuple[str, ...]


@contextmanager
def discovered(names: Iterable[str]) -> Iterator[Discovered]:
    """Find the evidence behind the names; standard input (`-`) is kept in a file as long as the context lives.

    A folder gives every file in it, at any depth, that a reader knows, unless the folder itself is evidence (an
    export of one file per table); a README tells of evidence and is none. A file named by itself must be evidence.
    A name that does not exist is tried as a pattern, which gives what it matches as a folder gives what it holds.
    What cannot be used is given with its fault, as long as something else can.

    Raises:
        UsageError: a name matches nothing, or standard input is a terminal or empty.
        UnknownEvidenceError: the only file named is not evidence, or the folder holds none.
        EvidenceTooLargeError: a folder holds too many files to look at, or standard input is over the bound.
        NoEvidenceLeftError: several were named, and each has its fault.
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
            raise error.with_name(spooled, "standard input") from error


def _discover(names: Iterable[str], spooled: Path | None) -> Discovered:
    found: dict[str, EvidencePath] = {}
    skipped: list[str] = []
    for name in names:
        try:
            entries, unknown = _named(name, spooled)
        except EvidenceError as error:
            entries, unknown = [replace(EvidencePath.of(Path(name), error), path=_place(name, spooled))], []
        skipped.extend(name for name in unknown if not _is_about_evidence(Path(name).name))
        for entry in entries:
            found.setdefault(os.path.realpath(entry.path), entry)
    evidence = tuple(found.values())
    refuse_where_all_failed([entry.fault for entry in evidence])
    return Discovered(evidence, tuple(skipped))


def refuse_where_all_failed(faults: Sequence[EvidenceError | None]) -> None:
    """Refuse evidence of which every piece has a fault.

    Raises:
        EvidenceError: the one fault.
        NoEvidenceLeftError: all of several.
    """
    known = [fault for fault in faults if fault is not None]
    if len(known) < len(faults) or not known:
        return
    if len(known) == 1:
        raise known[0]
    raise NoEvidenceLeftError(fault.message for fault in known)


def _place(name: str, spooled: Path | None) -> Path:
    return spooled if name == STANDARD_INPUT and spooled is not None else Path(name)


def _named(name: str, spooled: Path | None) -> tuple[list[EvidencePath], list[str]]:
    """What one name stands for, and what of it no reader knows.

    Raises:
        EvidenceError: the file cannot be used, or nothing in the folder or behind the pattern is evidence.
    """
    path = _place(name, spooled)
    if path == spooled:
        return [EvidencePath(_known(path), name)], []
    if not _is_there(path):
        return _matching(name)
    if path.is_dir() and not registry.knows(path):
        return _inside(path)
    return [EvidencePath.of(_known(path))], []


def _is_there(path: Path) -> bool:
    """Tell whether a file or folder exists.

    Raises:
        EvidenceError: the system does not say, such as behind a folder that may not be entered.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError as error:
        raise EvidenceError(f"{path} cannot be opened: {error.strerror or error}") from error
    return True


def _known(path: Path) -> Path:
    if not is_case_file(path):
        registry.reader_for(path)  # names the problem before anything is read
    return path


def _matching(pattern: str) -> tuple[list[EvidencePath], list[str]]:
    if not glob.has_magic(pattern):
        raise UsageError(f"there is no file or folder {pattern}")
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob refuses absolute patterns
    if not matches:
        raise UsageError(f"nothing matches {pattern}")
    found, unknown = _sorted_out(entry for match in matches for entry in _files(Path(match)))
    if not found:
        raise UnknownEvidenceError(f"nothing that matches {pattern} is evidence that doctor reads")
    return found, unknown


def _files(path: Path) -> Iterator[EvidencePath]:
    if path.is_dir() and not registry.knows(path):
        yield from _walk(path)
    else:
        yield EvidencePath.of(path)


def _inside(folder: Path) -> tuple[list[EvidencePath], list[str]]:
    found, unknown = _sorted_out(_walk(folder))
    if not found:
        looked_at = f"{format_counted(len(unknown), 'file')} looked at" if unknown else "it is empty"
        raise UnknownEvidenceError(f"{folder} holds no evidence that doctor reads ({looked_at})")
    return found, unknown


def _sorted_out(entries: Iterable[EvidencePath]) -> tuple[list[EvidencePath], list[str]]:
    """What a reader knows or should have known, and the others."""
    found: list[EvidencePath] = []
    unknown: list[str] = []
    for entry in entries:
        if entry.fault is None and entry.path.name.startswith(_ABOUT_EVIDENCE):  # whatever figures it quotes
            unknown.append(entry.shown)
            continue
        try:
            if entry.fault is None:
                registry.reader_for(entry.path)
        except EvidenceError as error:
            if not _is_lost(entry.path, error):
                unknown.append(entry.shown)
                continue
            found.append(replace(entry, fault=error))
        else:
            found.append(entry)
    return found, unknown


def _is_about_evidence(name: str) -> bool:
    return name.startswith(_ABOUT_EVIDENCE) or name.endswith(_NO_EVIDENCE_NAMES)


def _is_lost(path: Path, error: EvidenceError) -> bool:
    """Tell evidence that cannot be read from what merely lies beside it.

    Nothing in an unknown or empty file tells: an empty log says that nothing was logged, an empty recording that one
    was lost, and only the name knows which it is. So it is with a link to what is gone.
    """
    if isinstance(error, UnknownEvidenceError):
        return path.name.endswith(_RECORDING_NAMES)
    try:
        status = path.stat()
    except OSError as fault:
        if fault.errno == errno.ELOOP:  # a link to itself never was a file
            return False
        return fault.errno != errno.ENOENT or path.name.endswith(_NEVER_EMPTY_NAMES)
    if not stat.S_ISREG(status.st_mode):
        return False
    return status.st_size > 0 or path.name.endswith(_NEVER_EMPTY_NAMES)


def _walk(folder: Path) -> Iterator[EvidencePath]:
    """Files below the folder, by name; folders that are evidence themselves come whole; hidden ones are passed by."""
    count = 0
    closed: list[EvidencePath] = []
    for place, folders, files in os.walk(folder, onerror=lambda error: closed.append(_closed(error))):
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
                yield EvidencePath.of(here / name)
    yield from closed


def _closed(error: OSError) -> EvidencePath:
    path = Path(os.fsdecode(error.filename))
    return EvidencePath.of(path, EvidenceError(f"{path} cannot be looked into: {error.strerror or error}"))


def _spool(target: Path) -> None:
    if sys.stdin is None or sys.stdin.isatty():
        kind = "closed" if sys.stdin is None else "a terminal"
        raise UsageError(f"standard input is {kind}: pipe evidence into doctor, or name a file")
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
