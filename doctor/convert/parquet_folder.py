"""The export as a folder of Parquet files, one a table, as NVIDIA's `parquetdir` has it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from doctor.errors import UsageError
from doctor.formats.nsys_report.report import TableRows


def write_parquet(parts: Iterable[TableRows], path: Path) -> dict[str, int]:
    """Write every batch into `<table>.parquet` in a new folder and return the rows of each table.

    The folder appears under its name only when it is whole.

    Raises:
        UsageError: the folder exists or cannot be written.
    """
    if path.exists():
        raise UsageError(f"{path} exists already: name a new folder, or remove it first")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    writers: dict[str, pq.ParquetWriter] = {}
    counts: dict[str, int] = {}
    try:
        unfinished.mkdir()
        with contextlib.ExitStack() as opened:  # a full disk lets none of them close: each says so, none is left to try
            for part in parts:
                if part.table not in writers:
                    writer = pq.ParquetWriter(unfinished / f"{part.table}.parquet", part.rows.schema)
                    writers[part.table] = writer
                    opened.callback(_close, writer)
                writers[part.table].write_batch(part.rows)
                counts[part.table] = counts.get(part.table, 0) + part.rows.num_rows
        unfinished.rename(path)
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be written: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return counts


def _close(writer: pq.ParquetWriter) -> None:
    try:
        writer.close()
    finally:
        writer.is_open = False  # pyarrow would try again when the writer is collected, and print a traceback
