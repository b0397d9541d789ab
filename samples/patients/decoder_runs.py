"""The small decoder of `samples/workload.py`, sick and fixed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

from samples.patients.patient import Build, Job, Patient, Recorder, Workshop

_PATH = Path(__file__).parents[1] / "workload.py"


def _program() -> Any:
    name = "samples_workload"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _PATH)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


class DecoderJob:
    """Prefill and decode steps of one batch."""

    def __init__(self, case: str, is_sick: bool) -> None:
        program = _program()
        torch.manual_seed(0)
        self._run = program.Run(program.Case(case, is_sick, **program.CASES[case]))
        self._steps = self._run.case.steps
        self._run.generate(2)
        self._run.generate(2)
        torch.cuda.synchronize()

    def run(self) -> None:
        """Generate; twice the recorded number of steps."""
        self._run.generate(2 * self._steps)
        torch.cuda.synchronize()

    def record(self, recorder: Recorder) -> None:
        """Record one batch; three steps for the torch profiler, whose traces are large."""
        with recorder.around():
            self._run.generate(3 if recorder.name == "torch" else self._steps)
            torch.cuda.synchronize()

    def facts(self) -> dict[str, object]:
        """Nothing is counted: the code is the proof."""
        return {}


def decoder_job(case: str, is_sick: bool) -> Build:
    """A job of the decoder."""

    def build(workshop: Workshop) -> Job:
        del workshop
        return DecoderJob(case, is_sick)

    return build


def _both(case: str) -> dict[str, Build]:
    return {"sick": decoder_job(case, True), "cured": decoder_job(case, False)}


_EAGER = ("cudagraph-off", "tiny-kernels", "host-dispatch-bound")

PATIENTS = (
    Patient(
        "decoder-mallocs",
        "every layer takes and gives back a workspace with cudaMalloc and cudaFree",
        **_both("mallocs"),
        first="host-dispatch-bound",  # the eager launches cost more: corrected after the first diagnosis
        cures="alloc-in-hot-loop",
        allowed=(*_EAGER, "alloc-in-hot-loop", "sync-in-step"),
    ),
    Patient(
        "decoder-fp32-trap",
        "everything in fp32, in a run that launches hold up",
        **_both("fp32trap"),
        first="host-dispatch-bound",
        cures="wrong-dtype-fp32",
        allowed=(*_EAGER, "wrong-dtype-fp32", "tf32-off"),
    ),
    Patient(
        "decoder-expert-loop",
        "a Python loop visits 32 experts one after another",
        **_both("moe"),
        first="moe-expert-loop",
        allowed=(*_EAGER, "sync-in-step", "lazy-module-load"),
    ),
    Patient(
        "decoder-one-sequence-at-a-time",
        "eight sequences, one forward pass each",
        **_both("microbatch"),
        first="micro-batch-too-small",
        allowed=_EAGER,
    ),
)
