"""The tables of a case file, declared once.

Conventions: singular table names; every quantity ends in its unit (`_ns`, `_bytes`, `_bytes_per_s`, `_hz`,
`_count`); times are int64
nanoseconds on the clock of their source (`source.clock_offset_ns` moves them onto the case's clock); unknown is
NULL; every row has
`source_id`. Bulk tables declare no key: a key costs four times the load time, and uniqueness is a query in the tests.

Text columns named `<what>_id` whose `info` says `interned` hold ids of the table `text`. A reader gives such a
column as plain or
dictionary-encoded strings under the name `<what>`; `doctor.case.load` interns them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, MetaData, SmallInteger, Table, Text

SCHEMA_VERSION = 1
INTERNED = {"interned": True}

metadata = MetaData()


def _whole(name: str, comment: str, *, nullable: bool = True) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable, autoincrement=False, comment=comment)


def _small(name: str, comment: str) -> Column[int]:
    return Column(name, Integer, nullable=True, autoincrement=False, comment=comment)


def _text(name: str, comment: str) -> Column[str]:
    return Column(name, Text, nullable=True, comment=comment)


def _interned(name: str, comment: str) -> Column[int]:
    return Column(f"{name}_id", Integer, nullable=True, autoincrement=False, comment=comment, info=INTERNED)


def _real(name: str, comment: str) -> Column[float]:
    return Column(name, Double, nullable=True, comment=comment)


def _source() -> Column[int]:
    return Column(
        "source_id",
        SmallInteger,
        nullable=False,
        autoincrement=False,
        comment="the evidence file this row was read from",
    )


def _interval() -> tuple[Column[Any], Column[Any]]:
    return (
        _whole("start_ns", "start on the source's clock"),
        _whole("end_ns", "end on the source's clock; NULL where the recording stopped first"),
    )


def _on_thread() -> tuple[Column[Any], Column[Any]]:
    return _whole("pid", "process id"), _whole("tid", "thread id")


def _on_stream() -> tuple[Column[Any], ...]:
    return (
        _whole("pid", "process that launched the work"),
        _small("device_id", "CUDA/HIP ordinal within the process, as recorded"),
        _small("context_id", "context"),
        _whole("stream_id", "stream"),
        _whole("correlation_id", "joins the work to its API call, within one process"),
        _whole("graph_node_id", "node of the CUDA graph that ran the work"),
    )


schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, nullable=False, autoincrement=False, comment="layout of this case file"),
    Column("doctor_version", Text, nullable=False, comment="version of doctor that wrote it"),
    comment="One row: what wrote this file",
)

text = Table(
    "text",
    metadata,
    Column("text_id", Integer, nullable=False, autoincrement=False, comment="id used by every interned column"),
    Column("text", Text, nullable=False, comment="the text"),
    comment="Interned names: kernels, API calls, ranges, operators",
)

source = Table(
    "source",
    metadata,
    _source(),
    _text("path", "file as the user named it"),
    _text("kind", "nsys-report, nsys-sqlite, nsys-columnar, kineto, ..."),
    _text("tool", "recorder and its version"),
    Column("is_complete", Boolean, nullable=False, comment="false where part of the file could not be read"),
    _text("notes", "JSON list of one-line notes on what was not read or looks wrong"),
    _whole("capture_start_ns", "start of the capture window on the source's clock"),
    _whole("capture_end_ns", "end of the capture window on the source's clock"),
    _whole("clock_offset_ns", "add to the source's times to get the case's clock"),
    _small("rank", "rank of the process in its job, where the evidence says so"),
    _small("world_size", "number of ranks in the job, where the evidence says so"),
    _text(
        "graph_trace_level",
        "graph: one row hides a whole CUDA graph launch; node: every kernel is recorded; NULL unknown",
    ),
    comment="Evidence files of this case",
)

device = Table(
    "device",
    metadata,
    _source(),
    _small("device_id", "ordinal that kernels of this source use"),
    _text("name", "product name"),
    _text("vendor", "nvidia, amd, other"),
    _small("sm_count", "streaming multiprocessors or compute units"),
    _whole("memory_bytes", "device memory"),
    _real("memory_rate_bytes_per_s", "peak memory bandwidth as reported"),
    _real("clock_hz", "maximum SM clock"),
    _small("compute_major", "compute capability, major"),
    _small("compute_minor", "compute capability, minor"),
    comment="Accelerators",
)

process = Table(
    "process",
    metadata,
    _source(),
    _whole("pid", "process id"),
    _text("name", "base name of the executable, never its command line"),
    comment="Processes seen in the evidence",
)

thread = Table("thread", metadata, _source(), *_on_thread(), _text("name", "thread name"), comment="Thread names")

stream = Table(
    "stream",
    metadata,
    _source(),
    _whole("pid", "process id"),
    _small("device_id", "device of the context"),
    _small("context_id", "context"),
    _whole("stream_id", "stream"),
    _small("priority", "scheduling priority, lower is more urgent"),
    Column("is_null_stream", Boolean, nullable=True, comment="true for the context's default stream"),
    comment="CUDA streams",
)

kernel = Table(
    "kernel",
    metadata,
    _source(),
    *_on_stream(),
    *_interval(),
    _interned("name", "demangled name with template arguments"),
    _interned("short_name", "function name without template arguments"),
    _small("grid_x", "blocks"),
    _small("grid_y", "blocks"),
    _small("grid_z", "blocks"),
    _small("block_x", "threads"),
    _small("block_y", "threads"),
    _small("block_z", "threads"),
    _small("registers_per_thread_count", "registers"),
    _whole("static_shared_bytes", "static shared memory of a block"),
    _whole("dynamic_shared_bytes", "dynamic shared memory of a block"),
    comment="Kernels that ran on a device",
)

memcpy = Table(
    "memcpy",
    metadata,
    _source(),
    *_on_stream(),
    *_interval(),
    _whole("size_bytes", "bytes moved"),
    _text("copy_kind", "htod, dtoh, dtod, htoh, ptop or NULL"),
    _text("src_kind", "pageable, pinned, device, array, managed or NULL"),
    _text("dst_kind", "pageable, pinned, device, array, managed or NULL"),
    comment="Copies",
)

memset = Table(
    "memset",
    metadata,
    _source(),
    *_on_stream(),
    *_interval(),
    _whole("size_bytes", "bytes set"),
    _text("memory_kind", "pageable, pinned, device, array, managed or NULL"),
    comment="Memory sets",
)

graph_trace = Table(
    "graph_trace",
    metadata,
    _source(),
    *_on_stream(),
    *_interval(),
    _whole("graph_id", "graph"),
    _whole("graph_exec_id", "instantiated graph"),
    comment="Whole CUDA graph launches recorded as one row: their kernels are hidden, the device is busy",
)

device_sync = Table(
    "device_sync",
    metadata,
    _source(),
    *_on_stream(),
    *_interval(),
    _text("sync_kind", "event, stream_wait, stream, context or NULL; use the API name to decide what was waited for"),
    comment="Synchronisation records of the driver",
)

api_call = Table(
    "api_call",
    metadata,
    _source(),
    *_on_thread(),
    *_interval(),
    _interned("name", "function with its version suffix"),
    _text("api", "runtime, driver"),
    _whole("correlation_id", "joins the call to the work it launched, within one process"),
    _small("return_value", "status code"),
    comment="Calls into the CUDA or HIP runtime and driver",
)

nvtx_range = Table(
    "nvtx_range",
    metadata,
    _source(),
    *_on_thread(),
    *_interval(),
    _interned("name", "the range's text"),
    _interned("domain", "name of the NVTX domain; NULL is the default domain"),
    _text("range_kind", "push_pop, start_end, mark"),
    comment="Annotations: NVTX of an nsys recording, user annotations of a Kineto trace",
)

host_op = Table(
    "host_op",
    metadata,
    _source(),
    *_on_thread(),
    *_interval(),
    _interned("name", "operator or function"),
    _text("op_kind", "cpu_op, python_function"),
    _whole("sequence_id", "External id of the operator"),
    comment="Framework operators and Python functions of a Kineto trace",
)

os_call = Table(
    "os_call",
    metadata,
    _source(),
    *_on_thread(),
    *_interval(),
    _interned("name", "libc function"),
    _whole("return_value", "status"),
    comment="Operating system runtime calls",
)

collective = Table(
    "collective",
    metadata,
    _source(),
    _whole("pid", "process"),
    _whole("correlation_id", "the collective's kernel"),
    _interned("name", "collective as the library calls it"),
    _text("dtype", "element type"),
    _whole("in_count", "elements in"),
    _whole("out_count", "elements out"),
    _small("group_size_count", "ranks in the group"),
    _text("group_name", "process group"),
    comment="Metadata of collectives, where the recorder has it",
)

gpu_memory_event = Table(
    "gpu_memory_event",
    metadata,
    _source(),
    _whole("pid", "process"),
    _small("device_id", "device"),
    _whole("time_ns", "time on the source's clock"),
    _text("operation", "allocate, free"),
    _text("memory_kind", "device, pinned, managed, pageable"),
    _whole("size_bytes", "bytes"),
    _whole("address", "address"),
    _whole("correlation_id", "the call that did it"),
    comment="cudaMalloc and cudaFree as tracked by the recorder",
)

allocator_event = Table(
    "allocator_event",
    metadata,
    _source(),
    _whole("pid", "process"),
    _small("device_id", "device; NULL is host memory"),
    _whole("time_ns", "time on the source's clock"),
    _whole("size_bytes", "bytes; negative is a free"),
    _whole("allocated_bytes", "allocated afterwards"),
    _whole("reserved_bytes", "reserved afterwards"),
    comment="Events of the framework's caching allocator",
)

graph_event = Table(
    "graph_event",
    metadata,
    _source(),
    *_on_thread(),
    *_interval(),
    _text("event_kind", "graph, exec, node"),
    _interned("name", "API that did it"),
    _whole("graph_id", "graph"),
    _whole("graph_exec_id", "instantiated graph"),
    comment="Creation and instantiation of CUDA graphs",
)

profiler_overhead = Table(
    "profiler_overhead",
    metadata,
    _source(),
    *_on_thread(),
    *_interval(),
    _interned("name", "what the recorder was doing"),
    comment="Time the recorder itself took",
)

diagnostic = Table(
    "diagnostic",
    metadata,
    _source(),
    _whole("time_ns", "time on the source's clock"),
    _text("severity", "info, warning, error"),
    _text("message", "the recorder's own words, paths cut to their last part"),
    comment="What the recorder said about the recording",
)

BULK_TABLES = tuple(table for table in metadata.sorted_tables if table.name not in {"schema_version", "text", "source"})
