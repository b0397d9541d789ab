"""What `doctor convert` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from doctor.convert.parquet_folder import write_parquet
from doctor.convert.rows import export_rows
from doctor.convert.sqlite_file import write_sqlite
from doctor.errors import EvidenceError, UsageError
from doctor.formats.nsys_report.report import Progress, open_report

SQLITE_SUFFIXES = frozenset({".sqlite", ".sqlite3", ".db"})


@dataclass(frozen=True)
class Conversion:
    """What was written.

    Attributes:
        num_tables: tables with at least one row.
        num_rows: rows in all of them.
        is_complete: false where something of the report could not be read.
        notes: one line for each such thing.
    """

    num_tables: int
    num_rows: int
    is_complete: bool
    notes: tuple[str, ...]


def convert_report(report_path: Path, output: Path, progress: Progress | None = None) -> Conversion:
    """Convert a native report; the kind of output is told by its name.

    Raises:
        UsageError: the output's name says neither SQLite nor Parquet, or it exists, or cannot be written.
        EvidenceError: the report cannot be read.
    """
    if output.suffix in SQLITE_SUFFIXES:
        write = write_sqlite
    elif output.suffix == ".parquet":
        write = write_parquet
    else:
        raise UsageError(f"{output} says none of .sqlite, .parquet and .pftrace: give the output one of these endings")
    if report_path.exists() and not report_path.is_file():
        raise EvidenceError(f"{report_path} is no regular file: name a .nsys-rep")
    try:
        report = open_report(report_path)
        counts = write(export_rows(report, progress), output)
    except OSError as error:
        raise EvidenceError(f"{report_path} cannot be read: {error.strerror or error}") from error
    rows = {name: count for name, count in counts.items() if count}
    return Conversion(len(rows), sum(rows.values()), report.is_complete, tuple(report.notes))
