"""Captures a steady window of steps: after load, warm-up and graph capture, and not too long to read.

With nsys the window is opened by the CUDA profiler API; run the program under
`nsys profile --capture-range=cudaProfilerApi --capture-range-end=stop --trace=cuda,nvtx --cuda-graph-trace=node`.
The torch profiler writes a Kineto trace, on a GPU or without one. One line records, diagnoses and keeps the case:

    python -m engine bench --model "$DIR" --profile torch --trace t.json.gz &&
    doctor diagnose t.json.gz --save case.duckdb
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.execution.loop import EngineLoop

ProfilerName = Literal["nsys", "torch"]


@dataclass(frozen=True, slots=True)
class Window:
    """Which steps are captured.

    Attributes:
        skip: steps before the window.
        length: steps in it.
    """

    skip: int = 8
    length: int = 16


@contextmanager
def profiled(loop: EngineLoop, profiler: ProfilerName, trace: Path | None, window: Window) -> Iterator[None]:
    """Capture a window of the steps that run inside the block; the window ends with the block at the latest.

    Args:
        loop: whose steps are counted.
        profiler: who records.
        trace: where the torch profiler writes; nsys writes where its command line says.
        window: which steps.

    Raises:
        ConfigError: nsys is wanted but there is no GPU, or the torch profiler has nowhere to write.
    """
    if profiler == "nsys" and not torch.cuda.is_available():
        raise ConfigError("--profile nsys captures CUDA work, and torch sees no GPU here: use --profile torch")
    if profiler == "torch" and trace is None:
        raise ConfigError("--profile torch needs --trace FILE to write to")
    capture = _NsysCapture() if profiler == "nsys" else _TorchCapture(trace)
    gate = _Gate(capture, window)
    loop.before_step = gate.count
    try:
        yield
    finally:
        loop.before_step = None
        gate.close()


class _Gate:
    """Opens and closes a capture by the number of steps."""

    def __init__(self, capture: _NsysCapture | _TorchCapture, window: Window) -> None:
        self._capture = capture
        self._window = window
        self._num_steps = 0
        self._is_open = False

    def count(self) -> None:
        """A step is about to run."""
        if self._num_steps == self._window.skip:
            self._capture.start()
            self._is_open = True
        elif self._num_steps == self._window.skip + self._window.length:
            self.close()
        self._num_steps += 1

    def close(self) -> None:
        """End the capture, if it runs."""
        if self._is_open:
            self._is_open = False
            self._capture.stop()


class _NsysCapture:
    def start(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


class _TorchCapture:
    def __init__(self, trace: Path | None) -> None:
        self._trace = trace
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(activities=activities)

    def start(self) -> None:
        self._profile.start()

    def stop(self) -> None:
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._trace))
