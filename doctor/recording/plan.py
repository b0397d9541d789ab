"""What is recorded, and how much of it at most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Window:
    """The part of the run that is recorded.

    Attributes:
        seconds: longest length.
        delay_seconds: time before it; for nsys.
        is_chosen_by_program: from cudaProfilerStart to cudaProfilerStop; for nsys.
        skip_steps: steps before it; for the profiler of torch.
        steps: steps in it; for the profiler of torch.
    """

    seconds: float = 30.0
    delay_seconds: float = 0.0
    is_chosen_by_program: bool = False
    skip_steps: int = 8
    steps: int = 16


@dataclass(frozen=True)
class Limits:
    """When the command is told to end.

    Attributes:
        seconds: after this long; never where None.
        size_bytes: when the recording is larger.
    """

    seconds: float | None = None
    size_bytes: int = 4 * 2**30


@dataclass(frozen=True)
class Plan:
    """One recording.

    Attributes:
        folder: where the case is written.
        window: which part of the run.
        limits: when to stop.
        has_graph_nodes: every kernel inside CUDA graphs gets a row, which costs time in the run.
    """

    folder: Path
    window: Window = Window()
    limits: Limits = Limits()
    has_graph_nodes: bool = False
