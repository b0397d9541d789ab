"""What a profiler recorded: device work, calls, ranges, memory events."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Table

from doctor.case.schema.columns import (
    interned,
    interval,
    metadata,
    of_source,
    on_stream,
    on_thread,
    query_only,
    real,
    small,
    text_column,
    whole,
)

device = Table(
    "device",
    metadata,
    of_source(),
    small("device_id", "ordinal that kernels of this source use"),
    text_column("name", "product name"),
    text_column("vendor", "nvidia, amd, other"),
    small("sm_count", "streaming multiprocessors or compute units"),
    whole("memory_bytes", "device memory"),
    real("memory_rate_bytes_per_s", "peak memory bandwidth as reported"),
    real("clock_hz", "maximum SM clock"),
    small("compute_major", "compute capability, major"),
    small("compute_minor", "compute capability, minor"),
    comment="Accelerators",
)

process = Table(
    "process",
    metadata,
    of_source(),
    whole("pid", "process id"),
    text_column("name", "base name of the executable, never its command line"),
    comment="Processes seen in the evidence",
)

thread = Table(
    "thread", metadata, of_source(), *on_thread(), text_column("name", "thread name"), comment="Thread names"
)

stream = Table(
    "stream",
    metadata,
    of_source(),
    whole("pid", "process id"),
    small("device_id", "device of the context"),
    small("context_id", "context"),
    whole("stream_id", "stream"),
    small("priority", "scheduling priority, lower is more urgent"),
    Column("is_null_stream", Boolean, nullable=True, comment="true for the context's default stream"),
    comment="CUDA streams",
)

kernel = Table(
    "kernel",
    metadata,
    of_source(),
    *on_stream(),
    *interval(),
    interned("name", "demangled name with template arguments"),
    interned("short_name", "function name without template arguments"),
    small("grid_x", "blocks"),
    small("grid_y", "blocks"),
    small("grid_z", "blocks"),
    small("block_x", "threads"),
    small("block_y", "threads"),
    small("block_z", "threads"),
    query_only(small("registers_per_thread_count", "registers")),
    query_only(whole("static_shared_bytes", "static shared memory of a block")),
    query_only(whole("dynamic_shared_bytes", "dynamic shared memory of a block")),
    comment="Kernels that ran on a device",
)

memcpy = Table(
    "memcpy",
    metadata,
    of_source(),
    *on_stream(),
    *interval(),
    whole("size_bytes", "bytes moved"),
    text_column("copy_kind", "htod, dtoh, dtod, htoh, ptop or NULL"),
    text_column("src_kind", "pageable, pinned, device, array, managed or NULL"),
    text_column("dst_kind", "pageable, pinned, device, array, managed or NULL"),
    comment="Copies",
)

memset = Table(
    "memset",
    metadata,
    of_source(),
    *on_stream(),
    *interval(),
    whole("size_bytes", "bytes set"),
    text_column("memory_kind", "pageable, pinned, device, array, managed or NULL"),
    comment="Memory sets",
)

graph_trace = Table(
    "graph_trace",
    metadata,
    of_source(),
    *on_stream(),
    *interval(),
    whole("graph_id", "graph"),
    whole("graph_exec_id", "instantiated graph"),
    comment="Whole CUDA graph launches recorded as one row: their kernels are hidden, the device is busy",
)

device_sync = Table(
    "device_sync",
    metadata,
    of_source(),
    *on_stream(),
    *interval(),
    text_column(
        "sync_kind", "event, stream_wait, stream, context or NULL; use the API name to decide what was waited for"
    ),
    comment="Synchronisation records of the driver",
)

api_call = Table(
    "api_call",
    metadata,
    of_source(),
    *on_thread(),
    *interval(),
    interned("name", "function with its version suffix"),
    query_only(text_column("api", "runtime, driver")),
    whole("correlation_id", "joins the call to the work it launched, within one process"),
    query_only(small("return_value", "status code")),
    comment="Calls into the CUDA or HIP runtime and driver",
)

nvtx_range = Table(
    "nvtx_range",
    metadata,
    of_source(),
    *on_thread(),
    *interval(),
    interned("name", "the range's text"),
    interned("domain", "name of the NVTX domain; NULL is the default domain"),
    text_column("range_kind", "push_pop, start_end, mark"),
    comment="Annotations: NVTX of an nsys recording, user annotations of a Kineto trace",
)

host_op = Table(
    "host_op",
    metadata,
    of_source(),
    *on_thread(),
    *interval(),
    interned("name", "operator or function"),
    text_column("op_kind", "cpu_op, python_function"),
    whole("sequence_id", "External id of the operator"),
    comment="Framework operators and Python functions of a Kineto trace",
)

os_call = Table(
    "os_call",
    metadata,
    of_source(),
    *on_thread(),
    *interval(),
    interned("name", "libc function"),
    query_only(whole("return_value", "status")),
    comment="Operating system runtime calls",
)

collective = Table(
    "collective",
    metadata,
    of_source(),
    whole("pid", "process"),
    whole("correlation_id", "the collective's kernel"),
    interned("name", "collective as the library calls it"),
    text_column("dtype", "element type"),
    whole("in_count", "elements in"),
    whole("out_count", "elements out"),
    small("group_size_count", "ranks in the group"),
    text_column("group_name", "process group"),
    comment="Metadata of collectives, where the recorder has it",
)

gpu_memory_event = Table(
    "gpu_memory_event",
    metadata,
    of_source(),
    whole("pid", "process"),
    small("device_id", "device"),
    whole("time_ns", "time on the source's clock"),
    text_column("operation", "allocate, free"),
    text_column("memory_kind", "device, pinned, managed, pageable"),
    whole("size_bytes", "bytes"),
    whole("address", "address"),
    whole("correlation_id", "the call that did it"),
    comment="cudaMalloc and cudaFree as tracked by the recorder",
)

allocator_event = Table(
    "allocator_event",
    metadata,
    of_source(),
    whole("pid", "process"),
    small("device_id", "device; NULL is host memory"),
    whole("time_ns", "time on the source's clock"),
    whole("size_bytes", "bytes; negative is a free"),
    whole("allocated_bytes", "allocated afterwards"),
    whole("reserved_bytes", "reserved afterwards"),
    comment="Events of the framework's caching allocator",
)

graph_event = Table(
    "graph_event",
    metadata,
    of_source(),
    *on_thread(),
    *interval(),
    text_column("event_kind", "graph, exec, node"),
    interned("name", "API that did it"),
    whole("graph_id", "graph"),
    whole("graph_exec_id", "instantiated graph"),
    comment="Creation and instantiation of CUDA graphs",
)

profiler_overhead = Table(
    "profiler_overhead",
    metadata,
    of_source(),
    *on_thread(),
    *interval(),
    interned("name", "what the recorder was doing"),
    comment="Time the recorder itself took",
)

diagnostic = Table(
    "diagnostic",
    metadata,
    of_source(),
    whole("time_ns", "time on the source's clock"),
    text_column("severity", "info, warning, error"),
    text_column("message", "the recorder's own words, paths cut to their last part"),
    comment="What the recorder said about the recording",
)
