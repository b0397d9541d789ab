"""Ranges for nsys (through NVTX) and for the torch profiler, free while neither listens.

nsys announces itself to the process it profiles by an environment variable, before the first import; the torch profiler
may start and stop at any time. `torch.cuda.nvtx` is not used: it raises on builds of torch without CUDA.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

import torch

from engine.tracing.ranges import DOMAIN, Range

_SILENT: AbstractContextManager[None] = nullcontext()
_TOOL_VARIABLES = ("NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH")


def _nvtx_domain() -> Any | None:
    """The NVTX domain `engine`, or None where no tool listens or the package `nvtx` is not installed."""
    if not any(os.environ.get(name) for name in _TOOL_VARIABLES):
        return None
    try:
        import nvtx  # noqa: PLC0415  the package is optional, and costs nothing where no tool listens
    except ImportError:
        return None
    return nvtx.get_domain(DOMAIN)


_DOMAIN = _nvtx_domain()


def is_listening() -> bool:
    """Whether a profiler records this process now."""
    return _DOMAIN is not None or torch._C._autograd._profiler_enabled()


class _Span:
    """One nested range, written to both tools."""

    __slots__ = ("_attributes", "_record")

    def __init__(self, name: Range, payload: int) -> None:
        self._record = torch.profiler.record_function(name.value)
        self._attributes = None if _DOMAIN is None else _DOMAIN.get_event_attributes(name.value, payload=payload)

    def __enter__(self) -> None:
        if _DOMAIN is not None:
            _DOMAIN.push_range(self._attributes)
        self._record.__enter__()  # type: ignore[no-untyped-call]  # torch 2.13 does not annotate it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._record.__exit__(kind, error, trace)
        if _DOMAIN is not None:
            _DOMAIN.pop_range()


def span(name: Range, payload: int = 0) -> AbstractContextManager[None]:
    """A range around a block of code; costs one check while no profiler listens.

    Args:
        name: what happens inside.
        payload: a number that NVTX keeps beside the name (rows of the batch, index of the layer); the torch profiler
            has no place for it.
    """
    return _Span(name, payload) if is_listening() else _SILENT


class OpenRanges:
    """Ranges that overlap each other (the life of a request), told apart by a key."""

    def __init__(self) -> None:
        self._handles: dict[int, Any] = {}

    def begin(self, name: Range, key: int) -> None:
        """Open a range; nothing happens while no profiler listens."""
        if _DOMAIN is not None:
            self._handles[key] = _DOMAIN.start_range(_DOMAIN.get_event_attributes(name.value, payload=key))
        elif torch._C._autograd._profiler_enabled():
            with torch.profiler.record_function(f"{name.value} begin"):
                pass

    def end(self, name: Range, key: int) -> None:
        """Close the range with this key, if it was opened."""
        handle = self._handles.pop(key, None)
        if handle is not None and _DOMAIN is not None:
            _DOMAIN.end_range(handle)
        elif torch._C._autograd._profiler_enabled():
            with torch.profiler.record_function(f"{name.value} end"):
                pass
