"""Rows of the export: each table of the layout with all its columns, in order, as Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources import files

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from doctor.convert import layout
from doctor.convert.layout import LayoutTable, Version
from doctor.formats.nsys_report.report import NsysReport, Progress, TableRows
from doctor.formats.nsys_report.session import Session
from doctor.formats.nsys_report.target import Row
from doctor.formats.private_paths import executable_name
from doctor.version import __version__

ARROW_TYPES = {"INTEGER": pa.int64(), "TEXT": pa.string(), "REAL": pa.float64()}
SCHEMA_VERSION = "3.25.0"
THREAD_BITS = (1 << 24) - 1
"""A global id ends in 24 bits of thread id, and 24 bits of process id stand before them."""
GPU_ID_RENAMED: Version = (2021, 1, 0)
"""Versions before it call the number of a GPU `deviceId`."""
SYNC_TYPE_MOVED: Version = (2024, 6, 0)
"""First version that writes the kind of a synchronisation under `syncType` anew and the old field under
`deprecatedSyncType`."""


def export_rows(report: NsysReport, progress: Progress | None = None) -> Iterator[TableRows]:
    """Yield the whole export: events, targets, the names they use, symbols and meta data.

    A table can come in several batches. Rows of one table have the same columns, those of the layout. Progress is
    reported as bytes of the report.
    """
    used = _Used(set(), set())
    process_names: dict[int, str | None] = {}
    for part in report.event_tables(progress):
        table = layout.BY_NAME[part.table]
        if table is layout.PROCESSES:
            process_names.update(_process_names(part.rows))
        elif _is_exported(table, report.session.version):
            yield used.collect(table, _shape(table, _adapt(part, report.session.version)))
    for name, rows in _target_rows(report):
        table = layout.BY_NAME[name]
        if rows and _is_exported(table, report.session.version):
            yield used.collect(table, _shape(table, _from_rows(table, rows)))
    yield _processes(process_names, used.processes)
    yield _strings(report, used.strings)
    yield from _enumerations()
    yield from _meta_data(report)


def arrow_schema(table: LayoutTable) -> pa.Schema:
    """Arrow types of a table of the layout."""
    return pa.schema([(column.name, ARROW_TYPES[column.sql_type]) for column in table.columns])


def _is_exported(table: LayoutTable, version: Version | None) -> bool:
    return table.since is None or version is None or version >= table.since


def _adapt(part: TableRows, version: Version | None) -> pa.RecordBatch:
    """Columns that the exporter fills from another field, or under two names over the years."""
    rows = part.rows
    if part.table == "PROFILER_OVERHEAD":
        return rows.append_column("overheadType", rows.column("returnValue"))
    if part.table == "CUPTI_ACTIVITY_KIND_KERNEL":
        return rows.append_column("tensorSizeMinusOneElements", pa.array(["[]"] * rows.num_rows))
    if part.table == "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION" and version is not None and version < SYNC_TYPE_MOVED:
        index = rows.schema.get_field_index("syncType")
        return rows.set_column(
            index, "syncType", pc.coalesce(rows.column("syncType"), rows.column("deprecatedSyncType"))
        )
    return rows


def _shape(table: LayoutTable, rows: pa.RecordBatch) -> pa.RecordBatch:
    arrays = []
    for column in table.columns:
        arrow_type = ARROW_TYPES[column.sql_type]
        index = rows.schema.get_field_index(column.name)
        values = pa.nulls(rows.num_rows, arrow_type) if index < 0 else rows.column(index).cast(arrow_type)
        if column.is_required and values.null_count:
            values = pc.fill_null(values, "" if column.sql_type == "TEXT" else 0)
        arrays.append(values)
    return pa.record_batch(arrays, schema=arrow_schema(table))


@dataclass(frozen=True)
class _Used:
    """Ids of texts and global ids of processes that written rows refer to."""

    strings: set[int]
    processes: set[int]

    def collect(self, table: LayoutTable, rows: pa.RecordBatch) -> TableRows:
        """Note what the rows refer to, and name them."""
        for name in table.name_columns:
            self.strings.update(_distinct(rows.column(name)))
        if table is not layout.BY_NAME["ThreadNames"]:
            for name in {"globalPid", "globalTid"} & set(rows.schema.names):
                self.processes.update(global_id & ~THREAD_BITS for global_id in _distinct(rows.column(name)))
        return TableRows(table.name, rows)


def _distinct(values: pa.Array) -> list[int]:
    found: list[int] = np.unique(values.drop_null().to_numpy(zero_copy_only=False)).tolist()
    return found


def _process_names(rows: pa.RecordBatch) -> Iterator[tuple[int, str | None]]:
    """Base names of executables; a program that was started inside a process comes later and counts."""
    columns = [rows.column(name).to_pylist() for name in ("globalPid", "executable", "name")]
    for global_pid, executable, name in zip(*columns, strict=True):
        if global_pid is not None:
            yield global_pid, executable_name(executable or name)


def _processes(names: dict[int, str | None], used: set[int]) -> TableRows:
    """Processes that have rows; the report lists the whole machine's."""
    found = sorted(used & names.keys())
    arrays = [
        pa.array(found, pa.int64()),
        pa.array([global_pid >> 24 & THREAD_BITS for global_pid in found], pa.int64()),
        pa.array([names[global_pid] for global_pid in found], pa.string()),
    ]
    return TableRows(layout.PROCESSES.name, pa.record_batch(arrays, schema=arrow_schema(layout.PROCESSES)))


def _from_rows(table: LayoutTable, rows: tuple[Row, ...]) -> pa.RecordBatch:
    columns = [column for column in table.columns if column.name in rows[0]]
    arrays = [pa.array([row[column.name] for row in rows], ARROW_TYPES[column.sql_type]) for column in columns]
    return pa.record_batch(arrays, names=[column.name for column in columns])


def _target_rows(report: NsysReport) -> Iterator[tuple[str, tuple[Row, ...]]]:
    yield "ThreadNames", report.thread_names
    yield "TARGET_INFO_GPU", _gpus(report)
    yield "TARGET_INFO_CUDA_GPU", report.target.cuda_gpus
    yield "TARGET_INFO_CUDA_DEVICE", report.target.cuda_devices
    yield "TARGET_INFO_CUDA_CONTEXT_INFO", report.target.contexts
    yield "TARGET_INFO_CUDA_STREAM", report.target.streams
    yield "TARGET_INFO_SESSION_START_TIME", _start_time(report.session)
    yield "ANALYSIS_DETAILS", _details(report.session)


def _gpus(report: NsysReport) -> tuple[Row, ...]:
    version = report.session.version
    if version is None or version >= GPU_ID_RENAMED:
        return report.target.gpus
    return tuple({**row, "deviceId": row["id"]} for row in report.target.gpus)


def _start_time(session: Session) -> tuple[Row, ...]:
    times = session.start_times
    if times.utc_ns is None:
        return ()
    row: Row = {
        "utcEpochNs": times.utc_ns,
        "utcTime": _calendar(times.utc_ns),
        "localTime": None if times.local_ns is None else _calendar(times.local_ns),
        "systemClockNs": times.system_ns,
    }
    return (row,)


def _calendar(time_ns: int) -> str:
    return (datetime(1970, 1, 1) + timedelta(seconds=time_ns // 1_000_000_000)).isoformat()


def _details(session: Session) -> tuple[Row, ...]:
    if session.start_ns is None or session.stop_ns is None:
        return ()
    return (
        {
            "globalVid": session.vm_id,
            "duration": session.stop_ns - session.start_ns,
            "startTime": session.start_ns,
            "stopTime": session.stop_ns,
        },
    )


def _strings(report: NsysReport, used: set[int]) -> TableRows:
    ids = sorted(string_id for string_id in used if 0 <= string_id < len(report.strings))
    arrays = [pa.array(ids, pa.int64()), pa.array([report.text(string_id) for string_id in ids], pa.string())]
    return TableRows(layout.STRINGS.name, pa.record_batch(arrays, schema=arrow_schema(layout.STRINGS)))


def _enumerations() -> Iterator[TableRows]:
    text = files("doctor.convert").joinpath("enumerations.json").read_text(encoding="utf-8")
    for name, symbols in json.loads(text).items():
        table = layout.enumeration(name)
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(zip(*symbols, strict=True), arrow_schema(table), strict=True)
        ]
        yield TableRows(name, pa.record_batch(arrays, schema=arrow_schema(table)))


def _meta_data(report: NsysReport) -> Iterator[TableRows]:
    """What is known of recorder and export, without names of machines, users, files or commands."""
    capture = {"CAPTURE_PRODUCT_VERSION": report.session.version_text}
    export = {
        "EXPORT_PRODUCT_NAME": "Inference Doctor",
        "EXPORT_PRODUCT_VERSION": __version__,
        "EXPORT_SCHEMA_VERSION": SCHEMA_VERSION,
        **dict(
            zip(
                ("EXPORT_SCHEMA_VERSION_MAJOR", "EXPORT_SCHEMA_VERSION_MINOR", "EXPORT_SCHEMA_VERSION_MICRO"),
                SCHEMA_VERSION.split("."),
                strict=True,
            )
        ),
        "EXPORT_PARAM_LAZY": "true",
    }
    for table, values in ((layout.CAPTURE, capture), (layout.EXPORT, export)):
        arrays = [pa.array(list(values), pa.string()), pa.array(list(values.values()), pa.string())]
        yield TableRows(table.name, pa.record_batch(arrays, schema=arrow_schema(table)))
