"""Small PyTorch profiler traces, in the profiler's own format, for one behaviour each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOST_PID = 4000


def kernel(name: str, ts: float | int | str, dur: float | int | str = 1, **args: Any) -> dict[str, Any]:
    """A kernel on stream 7 of device 0; times in microseconds."""
    found = {"device": 0, "context": 1, "stream": 7, "correlation": 1, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": found}


def call(name: str, ts: float | int, dur: float | int = 1, pid: int = HOST_PID, correlation: int = 1) -> dict[str, Any]:
    """A runtime call of the host process."""
    args = {"External id": 1, "cbid": 211, "correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": pid, "tid": pid, "ts": ts, "dur": dur, "args": args}


def event(category: str, name: str, ts: float | int = 1, dur: float | int = 1, **fields: Any) -> dict[str, Any]:
    """An event of any category on the host process."""
    found = {"ph": "X", "cat": category, "name": name, "pid": HOST_PID, "tid": HOST_PID, "ts": ts, "dur": dur}
    return {**found, **fields}


def write_trace(path: Path, *events: dict[str, Any], **beside: Any) -> Path:
    """Write a trace with some events, and other values in front of them."""
    path.write_text(json.dumps({"schemaVersion": 1, **beside, "traceEvents": list(events)}, indent=2))
    return path
