"""Tells the format of evidence by its content and reads it.

A new reader is one line in `_FORMATS`. Readers are imported when their turn comes, so that a command that reads nothing
stays quick.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import cast

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.schema import Columns
from doctor.errors import EvidenceError, UnknownEvidenceError
from doctor.readers import nsys_tool
from doctor.readers.evidence_file import EvidenceFile, open_evidence
from doctor.readers.foreign_files import what_it_is
from doctor.readers.protocol import ColumnReader, Progress, Reader, no_progress
from doctor.readers.sqlite_header import MAGIC as SQLITE_MAGIC

NATIVE, NSYS = "native", "nsys"


@dataclass(frozen=True)
class _Format:
    """One reader.

    Attributes:
        module: under `doctor.readers`.
        reader: its class.
        needs_random_access: the reader is given an unpacked copy of a compressed file; otherwise it unpacks as it
            reads.
        is_folder: the evidence is a folder.
    """

    module: str
    reader: str
    needs_random_access: bool
    is_folder: bool = False

    def load(self) -> Reader:
        module = import_module(f"doctor.readers.{self.module}")
        return cast("Reader", getattr(module, self.reader)())


_FORMATS = (
    _Format("nsys_report", "NsysReportReader", needs_random_access=True),
    _Format("nsys_sqlite", "NsysSqliteReader", needs_random_access=True),
    _Format("torch_trace", "TorchTraceReader", needs_random_access=False),
    _Format("memory_snapshot", "MemorySnapshotReader", needs_random_access=True),
    _Format("nsys_columnar", "NsysColumnarReader", needs_random_access=False, is_folder=True),
    _Format("nvml_samples", "NvmlSamplesReader", needs_random_access=False),
    _Format("nvidia_smi_xml", "NvidiaSmiXmlReader", needs_random_access=False),
    _Format("bench_table", "BenchTableReader", needs_random_access=False),
    _Format("prompt_set", "PromptSetReader", needs_random_access=False),
    _Format("engine_config", "EngineConfigReader", needs_random_access=False),
    _Format("text.document", "TextDocumentReader", needs_random_access=False),  # last: any text may hold something
)


def knows(path: Path) -> bool:
    """Tell whether some reader reads the file or folder."""
    try:
        reader_for(path)
    except EvidenceError:
        return False
    return True


def kind_of(path: Path) -> str | None:
    """The kind of evidence that a file or folder holds; None where no reader knows it."""
    try:
        return reader_for(path).kind
    except EvidenceError:
        return None


def reader_for(path: Path) -> Reader:
    """The reader of a file or folder, told by content.

    Raises:
        UnknownEvidenceError: no reader knows it; the message says what it is and what to do.
        EvidenceError: it is missing, empty or unreadable.
    """
    return _find(path)[1]


def read(
    path: Path, reader: str = NATIVE, progress: Progress = no_progress, left_out: Columns | None = None
) -> Iterator[TableBatch | SourceFacts]:
    """Read one evidence file or folder.

    Args:
        path: plain or compressed.
        reader: `native`, or `nsys` to have reports exported by an installed Nsight Systems.
        progress: called as bytes are consumed.
        left_out: columns of the case that nobody wants; they may come nevertheless.

    Raises:
        EvidenceError: the evidence is unusable; the message says why and what to do.
        ToolMissingError: `nsys` is wanted and not installed.
    """
    known, found = _find(path)
    if not known.needs_random_access:
        yield from _read(found, path, progress, left_out)
        return
    file = open_evidence(path)
    through_nsys = reader == NSYS and known.module == "nsys_report"
    reading = progress if file.compression == "none" else _half(progress, file.size_bytes, 1)
    with file.unpacked(_half(progress, file.size_bytes, 0)) as plain:
        try:
            parts = _through_nsys(plain, reading, left_out) if through_nsys else _read(found, plain, reading, left_out)
            for part in parts:
                yield _with_fault(part, file.cut_short) if isinstance(part, SourceFacts) else part
        except EvidenceError as error:  # the user never saw the copy's name
            raise error.with_name(plain, path) from error


def _half(progress: Progress, size_bytes: int, half: int) -> Progress:
    """Progress of unpacking (half 0) or of reading what was unpacked (half 1), as bytes of the packed file."""
    return lambda done, total: progress(int(size_bytes * (half + (done / total if total else 0)) / 2), size_bytes)


def _read(
    reader: Reader, path: Path, progress: Progress, left_out: Columns | None
) -> Iterator[TableBatch | SourceFacts]:
    if left_out and isinstance(reader, ColumnReader):
        return reader.read_without(path, progress, left_out)
    return reader.read(path, progress)


def _through_nsys(report: Path, progress: Progress, left_out: Columns | None) -> Iterator[TableBatch | SourceFacts]:
    sqlite = next(known for known in _FORMATS if known.module == "nsys_sqlite")
    with nsys_tool.exported(report) as export:
        yield from _read(sqlite.load(), export, progress, left_out)


def _with_fault(facts: SourceFacts, fault: str | None) -> SourceFacts:
    return facts if fault is None else replace(facts, is_complete=False, notes=(fault, *facts.notes))


def _find(path: Path) -> tuple[_Format, Reader]:
    try:
        return _told_by_content(path)
    except OSError as error:
        raise EvidenceError(f"{path} cannot be opened: {error.strerror or error}") from error


def _told_by_content(path: Path) -> tuple[_Format, Reader]:
    if path.is_dir():
        for known in _FORMATS:
            if known.is_folder and (reader := known.load()).recognises(path, b""):
                return known, reader
        raise UnknownEvidenceError(f"{path} is a folder that is no export of Nsight Systems: name the evidence in it")
    file = open_evidence(path)
    head = file.head()
    for known in _FORMATS:
        if known.is_folder:
            continue
        reader = known.load()
        if _recognises(known, reader, file, head):
            return known, reader
    raise UnknownEvidenceError(f"{path} {what_it_is(file, head)}")


def _recognises(known: _Format, reader: Reader, file: EvidenceFile, head: bytes) -> bool:
    if reader.recognises(file.path, head):
        return True
    if file.compression == "none" or not (known.needs_random_access and head.startswith(SQLITE_MAGIC)):
        return False
    with file.unpacked() as plain:  # its first bytes do not settle it
        return reader.recognises(plain, head)
