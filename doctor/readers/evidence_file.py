"""One evidence file, plain or compressed: its first bytes, a stream, or an unpacked copy; bounded whatever it holds."""

from __future__ import annotations

import contextlib
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

import zstandard

from doctor.errors import DamagedEvidenceError, EvidenceError, EvidenceTooLargeError
from doctor.readers.protocol import Progress, no_progress
from doctor.units import format_bytes

HEAD_BYTES = 64 * 1024
Compression = Literal["none", "gzip", "zstd"]

_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b\x08"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAGIC_BYTES = 4
_ZSTD_STEP_BYTES = 2048
_ZSTD_WINDOW_BYTES = 128 << 20
_SALVAGE_BYTES = 512


@dataclass(frozen=True)
class UnpackingBounds:
    """What a compressed file may grow to: a bomb stops here, a real trace does not come near.

    Attributes:
        most_bytes: unpacked size.
        most_ratio: unpacked to packed size; real traces lie between 5 and 60.
        free_bytes: unpacked size up to which the ratio does not count.
    """

    most_bytes: int = 64 << 30
    most_ratio: int = 250
    free_bytes: int = 64 << 20


@dataclass
class EvidenceFile:
    """An existing, readable, regular and non-empty file; made by `open_evidence`.

    Attributes:
        path: as the user named it.
        size_bytes: on disk.
        compression: told by its first bytes.
        bounds: what it may unpack to.
        cut_short: set once a stream found that the compressed data ends too early or is damaged: one line.
    """

    path: Path
    size_bytes: int
    compression: Compression
    bounds: UnpackingBounds = field(default_factory=UnpackingBounds)
    cut_short: str | None = None

    def head(self) -> bytes:
        """The first 64 KiB after decompression, fewer where the file is shorter.

        Raises:
            DamagedEvidenceError: the compressed data is broken from its first byte.
        """
        found = b""
        for chunk in self.chunks():
            found += chunk
            if len(found) >= HEAD_BYTES:
                break
        if not found and self.cut_short:
            raise DamagedEvidenceError(f"{self.path}: {self.cut_short}: get the file again")
        return found[:HEAD_BYTES]

    def chunks(self, progress: Progress = no_progress) -> Iterator[bytes]:
        """Yield the contents after decompression, about 1 MiB at a time.

        Where compressed data is cut or damaged the stream ends with what came before and `cut_short` says so.

        Raises:
            EvidenceError: the disk refuses to read.
            EvidenceTooLargeError: the contents outgrow the bounds.
        """
        self.cut_short = None
        try:
            with self.path.open("rb") as packed:
                unpack = {"none": _plain, "gzip": self._gunzip, "zstd": self._unzstd}[self.compression]
                total = 0
                for chunk in unpack(packed):
                    total += len(chunk)
                    self._check_bounds(total, packed.tell())
                    progress(packed.tell(), self.size_bytes)
                    yield chunk
        except OSError as error:
            raise EvidenceError(f"{self.path} cannot be read: {error.strerror or error}") from error

    @contextmanager
    def unpacked(self, progress: Progress = no_progress) -> Iterator[Path]:
        """Give a path with the plain contents: the file itself, or a temporary copy that is removed afterwards.

        Raises:
            EvidenceTooLargeError: the contents outgrow the bounds or the disk for temporary files.
        """
        if self.compression == "none":
            yield self.path
            return
        with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
            copy = Path(folder) / "unpacked"
            with copy.open("wb") as plain:
                for chunk in self.chunks(progress):
                    if shutil.disk_usage(folder).free < 2 * len(chunk):
                        raise EvidenceTooLargeError(
                            f"{self.path} does not fit unpacked into {tempfile.gettempdir()}: "
                            "set TMPDIR to a larger disk, or unpack it yourself"
                        )
                    plain.write(chunk)
            yield copy

    def _check_bounds(self, unpacked_bytes: int, packed_bytes: int) -> None:
        if self.compression == "none":
            return
        ratio_exceeded = unpacked_bytes > max(packed_bytes, 1) * self.bounds.most_ratio
        if unpacked_bytes > self.bounds.most_bytes or (unpacked_bytes > self.bounds.free_bytes and ratio_exceeded):
            raise EvidenceTooLargeError(
                f"{self.path} unpacks to more than {format_bytes(unpacked_bytes)} from {format_bytes(packed_bytes)}, "
                "which no trace does: if you trust it, unpack it yourself and give the plain file"
            )

    def _gunzip(self, packed: BinaryIO) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=31)
        pending = packed.read(_CHUNK_BYTES)
        while pending:
            before = member.copy()
            try:
                plain = member.decompress(pending, _CHUNK_BYTES)
            except zlib.error:
                self.cut_short = "its gzip data is damaged"
                yield from _up_to_the_damage(before, pending)
                return
            if plain:
                yield plain
            if member.eof:
                pending = member.unused_data or packed.read(_CHUNK_BYTES)
                if not pending or not pending.startswith(
                    _GZIP_MAGIC[: len(pending)]
                ):  # padding, which gzip itself ignores too
                    return
                member = zlib.decompressobj(wbits=31)
            else:
                pending = member.unconsumed_tail or packed.read(_CHUNK_BYTES)
        if not member.eof:
            yield member.flush()
            self.cut_short = "its gzip data ends too early"

    def _unzstd(self, packed: BinaryIO) -> Iterator[bytes]:
        """Unpack in small steps: one step of a bomb stays below 100 MiB, and one step is all that damage costs."""
        frames = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        frame = frames.decompressobj()
        pending = packed.read(_ZSTD_STEP_BYTES)
        try:
            while pending:
                yield frame.decompress(pending)
                pending = packed.read(_ZSTD_STEP_BYTES) if not frame.eof else frame.unused_data
                if frame.eof and (pending or (pending := packed.read(_ZSTD_STEP_BYTES))):
                    frame = frames.decompressobj()
        except zstandard.ZstdError:
            self.cut_short = "its zstd data is damaged, or packed with a window of over 128 MiB"
            return
        if not frame.eof:
            self.cut_short = "its zstd data ends too early"


def open_evidence(path: Path) -> EvidenceFile:
    """Check that a path is a file that can be read, and tell its compression by content.

    Raises:
        EvidenceError: it is missing, no regular file, unreadable or empty; the message says which.
    """
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise EvidenceError(f"{path} does not exist: check the path") from error
    except OSError as error:
        raise EvidenceError(f"{path} cannot be opened: {error.strerror or error}") from error
    if stat.S_ISDIR(status.st_mode):
        raise EvidenceError(f"{path} is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise EvidenceError(f"{path} is no regular file (a pipe, socket or device): save it to a file first")
    if status.st_size == 0:
        raise EvidenceError(f"{path} is empty: the profiler wrote nothing, record again")
    try:
        with path.open("rb") as handle:
            magic = handle.read(_MAGIC_BYTES)
    except OSError as error:
        raise EvidenceError(f"{path} cannot be opened: {error.strerror or error}") from error
    return EvidenceFile(path, status.st_size, _compression(magic))


def _compression(magic: bytes) -> Compression:
    if magic.startswith(_GZIP_MAGIC):
        return "gzip"
    return "zstd" if magic == _ZSTD_MAGIC else "none"


def _up_to_the_damage(member: zlib._Decompress, packed: bytes) -> Iterator[bytes]:
    """What a piece holds before its damage, or before a checksum that does not fit."""
    with contextlib.suppress(zlib.error):
        while packed:
            yield member.decompress(packed, _SALVAGE_BYTES)
            packed = member.unconsumed_tail


def _plain(handle: BinaryIO) -> Iterator[bytes]:
    while chunk := handle.read(_CHUNK_BYTES):
        yield chunk
