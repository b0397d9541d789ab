"""What `doctor redact` does: tells the kind of evidence by content and writes a copy that can be given away."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from doctor.errors import DamagedEvidenceError, EvidenceError, UnknownEvidenceError, UsageError
from doctor.formats.kineto.opening import is_array_of_events
from doctor.formats.nsys_report.container import is_report
from doctor.redact.report import redact_report
from doctor.redact.sqlite import redact_sqlite
from doctor.redact.trace import OverlongTextError, redact_trace
from doctor.units import format_bytes

_HEAD_BYTES = 4096
_TRACE_HEAD_BYTES = 1 << 20
_SQLITE_MARK = b"SQLite format 3\x00"
_GZIP_MARK, _ZSTD_MARK = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_MOST_UNPACKED_BYTES = 64 << 30
_FREE_BYTES, _MOST_RATIO = 64 << 20, 250
"""Real traces unpack to 5 to 60 times their size; a bomb stops here."""
_COPY_BYTES = 1 << 20
_GZIP_LEVEL = 6


@dataclass(frozen=True)
class Redacted:
    """What was written.

    Attributes:
        kind: of the evidence: `nsys-report`, `nsys-sqlite` or `kineto`.
        is_whole: false where a trace ends too early, and the copy with it.
    """

    kind: str
    is_whole: bool = True


def redact(path: Path, output: Path) -> Redacted:
    """Write a copy of a report, an SQLite export or a PyTorch trace without private things.

    A .gz or .zst is read as what it holds, and written packed where the name of the output ends so. The copy appears
    under its name only when it is whole.

    Raises:
        UsageError: the output exists, is the input, or cannot be written.
        UnknownEvidenceError: the file is none of the three.
        EvidenceError: it cannot be read, or not whole.
    """
    if output.exists():
        raise UsageError(f"{output} exists already: name a new file, or remove it first")
    if path.exists() and not path.is_file():
        raise EvidenceError(f"{path} is no regular file: name the evidence itself")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent} is no folder: make it first")
    try:
        with _plain(path) as plain, _new_file(output) as unfinished:
            _check_room(plain, path, output)
            done = _redact_plain(plain, path, unfinished)
            _pack(unfinished, output)
    except OSError as error:
        raise EvidenceError(f"{path} cannot be redacted into {output}: {error.strerror or error}") from error
    return done


def _check_room(plain: Path, shown: Path, output: Path) -> None:
    free = shutil.disk_usage(output.parent).free
    if plain.stat().st_size > free:
        raise UsageError(f"{output.parent} has no room for a copy of {shown}: {format_bytes(free)} are free")


def _redact_plain(plain: Path, shown: Path, target: Path) -> Redacted:
    with plain.open("rb") as source:
        head = source.read(_HEAD_BYTES)
        source.seek(0)
        if is_report(head):
            with target.open("wb") as file:
                redact_report(plain, file)
            return Redacted("nsys-report")
        if head.startswith(_SQLITE_MARK) and _is_export(plain):
            redact_sqlite(plain, target)
            return Redacted("nsys-sqlite")
        if _is_trace(plain, head):
            try:
                with target.open("wb") as file:
                    return Redacted("kineto", is_whole=redact_trace(source, file))
            except OverlongTextError as error:
                raise DamagedEvidenceError(f"{shown} is damaged: {error}") from error
    raise UnknownEvidenceError(
        f"{shown} is no .nsys-rep, no SQLite export and no PyTorch trace: only these are redacted"
    )


def _is_trace(path: Path, head: bytes) -> bool:
    """Events of a trace near its start: of other JSON, and of logs that begin alike, nothing would be taken out."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start.startswith((b"{", b"[")):
        return False
    with path.open("rb") as file:
        beginning = file.read(_TRACE_HEAD_BYTES)
    return b'"traceEvents"' in beginning if start.startswith(b"{") else is_array_of_events(beginning)


def _is_export(path: Path) -> bool:
    """An SQLite database with tables that Nsight Systems writes."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as database:
            names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (sqlite3.Error, UnicodeDecodeError):
        return True  # a damaged one is refused with its own words
    return any(name.startswith(("META_DATA_", "TARGET_INFO_", "CUPTI_ACTIVITY_", "NVTX_EVENTS")) for name in names)


@contextmanager
def _plain(path: Path) -> Iterator[Path]:
    with path.open("rb") as file:
        mark = file.read(4)
    if not mark.startswith(_GZIP_MARK) and mark != _ZSTD_MARK:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="doctor-redact-") as folder:
        copy = Path(folder) / "plain"
        _unpack(path, copy, is_gzip=mark.startswith(_GZIP_MARK))
        yield copy


def _unpack(path: Path, copy: Path, *, is_gzip: bool) -> None:
    size = 0
    try:
        with path.open("rb") as packed, copy.open("wb") as plain:
            source = gzip.GzipFile(fileobj=packed) if is_gzip else zstandard.ZstdDecompressor().stream_reader(packed)
            while piece := cast("BinaryIO", source).read(_COPY_BYTES):
                size += len(piece)
                if size > max(_FREE_BYTES, min(_MOST_UNPACKED_BYTES, _MOST_RATIO * path.stat().st_size)):
                    raise EvidenceError(
                        f"{path} unpacks to more than any trace does: unpack it yourself if that is right"
                    )
                plain.write(piece)
    except (EOFError, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise DamagedEvidenceError(f"{path} is cut or damaged: redact the whole file instead") from error


@contextmanager
def _new_file(output: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
    finally:
        unfinished.unlink(missing_ok=True)


def _pack(unfinished: Path, output: Path) -> None:
    if output.suffix not in {".gz", ".zst"}:
        unfinished.chmod(0o644)
        unfinished.rename(output)
        return
    with _new_file(output) as packed:
        is_gzip = output.suffix == ".gz"
        with unfinished.open("rb") as plain, packed.open("wb") as raw, _packing(raw, is_gzip=is_gzip) as target:
            while piece := plain.read(_COPY_BYTES):
                target.write(piece)
        packed.chmod(0o644)
        packed.rename(output)


def _packing(raw: BinaryIO, *, is_gzip: bool) -> BinaryIO:
    if is_gzip:  # no name and no time in it: the copy of a copy is the same file
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=raw, mtime=0)
        return cast("BinaryIO", packed)
    return cast("BinaryIO", zstandard.ZstdCompressor().stream_writer(raw, closefd=False))
