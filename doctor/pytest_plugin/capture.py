"""The body of a marked test under the profiler of torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRACE = "body.pt.trace.json"


def why_not() -> str | None:
    """Why the profiler of torch cannot record device work here; None where it can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch  # noqa: PLC0415 - only marked tests pay for it

    return None if torch.cuda.is_available() else "torch sees no GPU here, and health is told by device work"


@contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Record what runs inside the context into a trace in the folder.

    Device work that was queued before is waited for first, and what the body queued is waited for last.
    """
    import torch  # noqa: PLC0415 - only marked tests pay for it

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        yield
        torch.cuda.synchronize()
    profile.export_chrome_trace(str(folder / TRACE))
