"""What an event is, by its category. Names changed over the years; both spellings are in use.

Never by process id: Python functions may claim process 0, which is also what GPU 0 is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class EventKind(Enum):
    """What an event is."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    DEVICE_SYNC = "device_sync"
    RUNTIME_CALL = "runtime call"
    DRIVER_CALL = "driver call"
    OPERATOR = "operator"
    PYTHON_FUNCTION = "python function"
    ANNOTATION = "annotation"
    OVERHEAD = "overhead"
    ALLOCATION = "allocation"
    WINDOW = "window"


KINDS: Mapping[str, EventKind] = {
    "kernel": EventKind.KERNEL,
    "Kernel": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "Memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "Memset": EventKind.MEMSET,
    "cuda_sync": EventKind.DEVICE_SYNC,
    "cuda_runtime": EventKind.RUNTIME_CALL,
    "hip_runtime": EventKind.RUNTIME_CALL,
    "Runtime": EventKind.RUNTIME_CALL,
    "cuda_driver": EventKind.DRIVER_CALL,
    "hip_driver": EventKind.DRIVER_CALL,
    "cpu_op": EventKind.OPERATOR,
    "Operator": EventKind.OPERATOR,
    "python_function": EventKind.PYTHON_FUNCTION,
    "user_annotation": EventKind.ANNOTATION,
    "overhead": EventKind.OVERHEAD,
    "Trace": EventKind.WINDOW,
}

LEFT_OUT = frozenset(
    {"gpu_user_annotation", "cuda_profiler_range", "ac2g", "async", "fwdbwd", "async_cpu_to_gpu", "async_gpu"}
)
"""Known and not read: arrows between events, and host annotations repeated on the device's rows."""

OLD_OPERATOR = "Operator"
STEP_PREFIX = "ProfilerStep#"
"""The profiler's own step annotation, an operator in traces of 2021."""

MEMORY_EVENT = "[memory]"
