"""The profiler of torch inside a Python command: an environment for the command, and what it left."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from doctor.recording.plan import Window

_INJECTED = Path(__file__).with_name("injected")
_FOLDER, _WINDOW = "DOCTOR_RECORD_FOLDER", "DOCTOR_RECORD_WINDOW"
TRACES = "torch-*.pt.trace.json"
_NOTES = "torch-*.note"


def injected_environment(environment: Mapping[str, str], folder: Path, window: Window) -> dict[str, str]:
    """The environment in which Python starts the recorder by itself; programs that are not Python do not notice."""
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join([str(_INJECTED), *([path] if path else [])]),
        _FOLDER: str(folder),
        _WINDOW: json.dumps({"skip_steps": window.skip_steps, "steps": window.steps, "seconds": window.seconds}),
    }


@dataclass(frozen=True)
class Injected:
    """What the recorder left: one trace a process, and why there is none."""

    traces: tuple[Path, ...]
    why_none: str


def collect(folder: Path, window: Window) -> Injected:
    """Traces in the folder; the notes beside them are read and removed."""
    notes = [json.loads(note.read_text(encoding="utf-8")) for note in sorted(folder.glob(_NOTES))]
    for leftover in (*folder.glob(_NOTES), *folder.glob("torch-*.partial")):
        leftover.unlink()
    return Injected(tuple(sorted(folder.glob(TRACES))), _why_none(notes, window))


def _why_none(notes: list[dict[str, object]], window: Window) -> str:
    if not notes:
        return "no Python process of the command imported torch"
    problems = [str(note["problem"]) for note in notes if note["problem"]]
    if problems:
        return f"the profiler of torch refused: {problems[0]}"
    if not any(note["is_final"] for note in notes):
        return "the command was ended before Python could write the trace"
    steps = max(int(str(note["steps"])) for note in notes)
    if not steps:
        return (
            "the command called no torch.nn.Module twice and replayed no CUDA graph, so it has no steps to count:"
            " use --profiler nsys, or torch.profiler in the program itself"
        )
    return f"the command ran {steps} steps, and the window begins after {window.skip_steps}: give fewer --skip-steps"
