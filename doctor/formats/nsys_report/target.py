"""What was recorded on: GPUs, CUDA devices of each process, contexts, streams, and the names of threads."""

from __future__ import annotations

from dataclasses import dataclass

from doctor.formats.nsys_report.wire import Message

GPU_COLUMNS: tuple[tuple[str, int, bool], ...] = (
    ("id", 1, False),
    ("name", 2, True),
    ("busLocation", 3, True),
    ("isDiscrete", 4, False),
    ("l2CacheSize", 10, False),
    ("totalMemory", 11, False),
    ("memoryBandwidth", 12, False),
    ("clockRate", 13, False),
    ("smCount", 14, False),
    ("pwGpuId", 9, False),
    ("uuid", 5, True),
    ("luid", 6, False),
    ("chipName", 7, True),
    ("cuDevice", 15, False),
    ("ctxswDevPath", 16, True),
    ("ctrlDevPath", 17, True),
    ("revision", 21, False),
    ("nodeMask", 22, False),
    ("constantMemory", 23, False),
    ("maxIPC", 24, False),
    ("maxRegistersPerBlock", 25, False),
    ("maxShmemPerBlock", 26, False),
    ("maxShmemPerBlockOptin", 27, False),
    ("maxShmemPerSm", 28, False),
    ("maxRegistersPerSm", 29, False),
    ("threadsPerWarp", 30, False),
    ("asyncEngines", 31, False),
    ("maxWarpsPerSm", 32, False),
    ("maxBlocksPerSm", 33, False),
    ("maxThreadsPerBlock", 34, False),
    ("maxBlockDimX", 35, False),
    ("maxBlockDimY", 36, False),
    ("maxBlockDimZ", 37, False),
    ("maxGridDimX", 38, False),
    ("maxGridDimY", 39, False),
    ("maxGridDimZ", 40, False),
    ("computeMajor", 41, False),
    ("computeMinor", 42, False),
    ("smMajor", 43, False),
    ("smMinor", 44, False),
)
"""Column of TARGET_INFO_GPU, field number, whether it is text."""

_CUDA_GPU_COLUMNS = (
    ("name", 1, True),
    ("pciBusId", 26, True),
    ("globalMemoryBandwidth", 2, False),
    ("globalMemorySize", 3, False),
    ("constantMemorySize", 4, False),
    ("l2CacheSize", 5, False),
    ("numThreadsPerWarp", 6, False),
    ("coreClockRate", 7, False),
    ("numMemcpyEngines", 8, False),
    ("numMultiprocessors", 9, False),
    ("maxIPC", 10, False),
    ("maxWarpsPerMultiprocessor", 11, False),
    ("maxBlocksPerMultiprocessor", 12, False),
    ("maxRegistersPerBlock", 13, False),
    ("maxSharedMemoryPerBlock", 14, False),
    ("maxThreadsPerBlock", 15, False),
    ("maxBlockDimX", 16, False),
    ("maxBlockDimY", 17, False),
    ("maxBlockDimZ", 18, False),
    ("maxGridDimX", 19, False),
    ("maxGridDimY", 20, False),
    ("maxGridDimZ", 21, False),
    ("computeCapabilityMajor", 22, False),
    ("computeCapabilityMinor", 23, False),
    ("deviceId", 24, False),
    ("pid", 25, False),
    ("maxSharedMemoryPerMultiprocessor", 27, False),
    ("maxRegistersPerMultiprocessor", 28, False),
)
"""Columns of TARGET_INFO_CUDA_GPU, which told of GPUs until 2020."""

_DEVICE_COLUMNS = (
    ("gpuId", 1, False),
    ("cudaId", 2, False),
    ("pid", 3, False),
    ("uuid", 5, True),
    ("numMultiprocessors", 6, False),
)
_CONTEXT_COLUMNS = (
    ("nullStreamId", 1, False),
    ("hwId", 2, False),
    ("vmId", 3, False),
    ("processId", 4, False),
    ("deviceId", 5, False),
    ("contextId", 6, False),
    ("parentContextId", 7, False),
    ("isGreenContext", 8, False),
    ("numMultiprocessors", 9, False),
    ("numTpcs", 10, False),
    ("tpcMask", 11, True),
    ("workqueueResourceId", 12, False),
    ("workqueueConcurrencyLimit", 13, False),
    ("workqueueSharingScope", 14, False),
)
_STREAM_COLUMNS = (
    ("streamId", 1, False),
    ("hwId", 2, False),
    ("vmId", 3, False),
    ("processId", 4, False),
    ("contextId", 5, False),
    ("priority", 6, False),
    ("flag", 7, False),
)
_THREAD_COLUMNS = (("nameId", 2, False), ("priority", 3, False), ("globalTid", 4, False))

Row = dict[str, int | str | None]


@dataclass(frozen=True)
class TargetTables:
    """Rows of the target tables, by NVIDIA's column names."""

    gpus: tuple[Row, ...] = ()
    cuda_gpus: tuple[Row, ...] = ()
    cuda_devices: tuple[Row, ...] = ()
    contexts: tuple[Row, ...] = ()
    streams: tuple[Row, ...] = ()


def read_thread_names(raw: bytes) -> tuple[Row, ...]:
    """Rows of ThreadNames; `nameId` is a string id.

    Raises:
        WireError: the bytes are no such message.
    """
    return tuple(_row(entry, _THREAD_COLUMNS) for entry in Message(raw).messages(1))


def read_target(raw: bytes) -> TargetTables:
    """Read the message that describes the recorded machine.

    Raises:
        WireError: the bytes are no such message.
    """
    message = Message(raw)
    gpus: list[Row] = []
    cuda_gpus: list[Row] = []
    devices: list[Row] = []
    for machine in message.messages(1):
        vm_id, parts = machine.integer(1), machine.message(2)
        if parts is None:
            continue
        gpus.extend({"vmId": vm_id, **_row(entry, GPU_COLUMNS)} for entry in parts.messages(7))
        cuda_gpus.extend({"vmId": vm_id, **_row(entry, _CUDA_GPU_COLUMNS)} for entry in parts.messages(1))
        devices.extend(_row(entry, _DEVICE_COLUMNS) for entry in parts.messages(9))
    contexts = tuple(_row(entry, _CONTEXT_COLUMNS) for entry in message.messages(14))
    streams = tuple(_row(entry, _STREAM_COLUMNS) for entry in message.messages(15))
    return TargetTables(tuple(gpus), tuple(cuda_gpus), tuple(devices), contexts, streams)


def _row(message: Message, columns: tuple[tuple[str, int, bool], ...]) -> Row:
    return {name: message.text(number) if is_text else message.integer(number) for name, number, is_text in columns}
