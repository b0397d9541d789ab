"""SQLite exports of Nsight Systems (`nsys export --type sqlite`, `nsys stats`), schema versions of 2020 to 2026.

Times are taken as they stand in the file: relative to the start of the capture unless the export was made with a shift.
The version in the file is the exporter's. Damaged files give what SQLite can still read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.schema import Columns
from doctor.errors import EvidenceError
from doctor.formats.nsys_export import export, tables
from doctor.formats.nsys_export.recording import Recording
from doctor.readers.ahead import read_ahead
from doctor.readers.protocol import Progress, no_progress
from doctor.readers.sqlite_header import MAGIC
from doctor.readers.sqlite_tables import SqliteTables

_BULK = (tables.RUNTIME, tables.KERNEL, tables.MEMCPY, tables.MEMSET, tables.SYNCHRONIZATION, tables.NVTX, tables.OSRT)


class NsysSqliteReader:
    """Reads one SQLite export."""

    kind = "nsys-sqlite"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell an export by the names of its tables, which mostly stand in its first pages."""
        if not head.startswith(MAGIC):
            return False
        if any(b"TABLE " + name.encode() in head for name in tables.MARKS_OF_AN_EXPORT):
            return True
        try:
            with SqliteTables(path, no_progress) as file:
                return not file.table_names.isdisjoint(tables.MARKS_OF_AN_EXPORT)
        except EvidenceError:
            return False

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield the rows of one export.

        Raises:
            DamagedEvidenceError: the list of tables itself cannot be read.
        """
        yield from self.read_without(path, progress, {})

    def read_without(self, path: Path, progress: Progress, left_out: Columns) -> Iterator[TableBatch | SourceFacts]:
        """Yield the rows of one export without some columns: what is wrong in them goes unnoticed.

        Raises:
            DamagedEvidenceError: the list of tables itself cannot be read.
        """
        with SqliteTables(path, progress) as file:
            file.expect([table.name for table in _BULK])
            yield from read_ahead(self._parts(file, left_out))

    def _parts(self, file: SqliteTables, left_out: Columns) -> Iterator[TableBatch | SourceFacts]:
        for part in export.read_export(file, left_out):
            if isinstance(part, Recording):
                yield _facts(self.kind, part, file.damage, file.remarks)
            else:
                yield TableBatch(part.table, part.rows)


def _facts(kind: str, recording: Recording, damage: Sequence[str], remarks: Sequence[str]) -> SourceFacts:
    return SourceFacts(
        kind=kind,
        tool=recording.tool,
        is_complete=not damage,
        notes=(*damage, *remarks, *recording.notes),
        capture_start_ns=recording.capture_start_ns,
        capture_end_ns=recording.capture_end_ns,
        clock_offset_ns=recording.clock_offset_ns,
        graph_trace_level=recording.graph_trace_level,
    )
