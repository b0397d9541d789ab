"""Folders that `nsys export --type parquetdir` or `arrowdir` writes: the SQLite export's tables, one file each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.schema import Columns
from doctor.errors import DamagedEvidenceError
from doctor.formats.nsys_export import export, tables
from doctor.formats.nsys_export.recording import Recording
from doctor.readers.columnar_tables import ColumnarTables, table_files
from doctor.readers.protocol import Progress


class NsysColumnarReader:
    """Reads one folder."""

    kind = "nsys-columnar"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell such a folder by the names of its files; a file is never one."""
        if head or not path.is_dir():
            return False
        names = {file.stem for file in table_files(path)}
        return not names.isdisjoint(tables.MARKS_OF_AN_EXPORT)

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield the rows of one folder.

        Raises:
            DamagedEvidenceError: none of its tables can be read.
        """
        yield from self.read_without(path, progress, {})

    def read_without(self, path: Path, progress: Progress, left_out: Columns) -> Iterator[TableBatch | SourceFacts]:
        """Yield the rows of one folder without some columns: what is wrong in them goes unnoticed.

        Raises:
            DamagedEvidenceError: none of its tables can be read.
        """
        folder = ColumnarTables(path, progress)
        row_count = 0
        for part in export.read_export(folder, left_out):
            if isinstance(part, Recording):
                if row_count == 0 and folder.damage:
                    raise DamagedEvidenceError(f"{path}: no table can be read ({folder.damage[0]}): export it again")
                yield _facts(self.kind, part, folder.damage, folder.remarks)
            else:
                row_count += part.rows.num_rows
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
