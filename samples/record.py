"""Measures and records every patient of `samples/patients` on the GPU of this machine.

Usage, in the repository root:

    python -m samples.record measure --out FOLDER [--only NAME ...] [--minutes 9]
    nsys profile --sample=none --cpuctxsw=none --trace=cuda,nvtx --cuda-memory-usage=true --cuda-graph-trace=node \
        --capture-range=cudaProfilerApi --capture-range-end=repeat --output FOLDER/report \
        python -m samples.record nsys --out FOLDER [--only NAME ...] [--minutes 9]
    python -m samples.record name-reports --out FOLDER
    python -m samples.record out-of-memory --out FOLDER

`measure` runs ill and cured in turn, without a profiler, and then records both with the PyTorch profiler. nsys writes
one report for each range, all of them when the program has ended; `name-reports` then moves each to its patient. Every
patient that is finished is skipped by the next run, so a run may be cut off. Reports hold the environment and command
lines: `doctor redact` them before they leave the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import gzip
import json
import logging
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from samples.out_of_memory import CASES
from samples.patients import decoder_runs, engine_runs, other_software
from samples.patients.patient import Job, Patient, Workshop

PATIENTS: tuple[Patient, ...] = (*engine_runs.PATIENTS, *decoder_runs.PATIENTS, *other_software.PATIENTS)
ROUNDS = 4
ORDER = "order-of-reports.txt"
_SMI_FIELDS = (
    "timestamp,index,name,driver_version,pstate,utilization.gpu,utilization.memory,memory.total,memory.used,"
    "clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,clocks_event_reasons.active,power.draw,power.limit,"
    "power.default_limit,temperature.gpu,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,"
    "pcie.link.width.max,ecc.errors.uncorrected.volatile.total,mig.mode.current,persistence_mode,compute_mode"
)


class TorchRecorder:
    """The PyTorch profiler with the options of a patient; writes one trace."""

    name = "torch"

    def __init__(self, trace: Path, options: Mapping[str, bool]) -> None:
        self._trace, self._options = trace, options

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Record what runs inside."""
        with torch.profiler.profile(**self._options) as profile:
            yield
        plain = self._trace.with_suffix("")
        profile.export_chrome_trace(str(plain))
        with plain.open("rb") as source, gzip.open(self._trace, "wb", 9) as target:
            shutil.copyfileobj(source, target)
        plain.unlink()


class NsysRecorder:
    """The range of the CUDA profiler that nsys waits for; each range becomes a report, numbered in this order."""

    name = "nsys"

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Record what runs inside."""
        torch.cuda.profiler.start()
        yield
        torch.cuda.profiler.stop()


def timed(job: Job) -> dict[str, float]:
    """One run: wall time, and CPU time of this thread, which launches."""
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    job.run()
    return {"wall_s": time.perf_counter() - wall_s, "thread_cpu_s": time.thread_time() - cpu_s}


def measure(patient: Patient, folder: Path, workshop: Workshop) -> None:
    """Run ill and cured in turn, then record each; what was found is written last, so its file says: finished."""
    folder.mkdir(parents=True, exist_ok=True)
    with logged(folder / "engine.log"):
        jobs = {"sick": patient.sick(workshop)}
        jobs["sick"].run()
        jobs["sick"].run()
    if patient.cured is not None:
        jobs["cured"] = patient.cured(workshop)
        jobs["cured"].run()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    with device_state(folder / "nvidia-smi.csv"):
        for _ in range(ROUNDS):
            for name, job in jobs.items():
                runs[name].append(timed(job))
    facts = {name: job.facts() for name, job in jobs.items()}
    for name, job in jobs.items():
        options = patient.torch_profiler if name == "sick" else {}
        job.record(TorchRecorder(folder / f"{name}.pt.trace.json.gz", options))
    found: dict[str, Any] = {"patient": patient.name, "runs": runs, "facts": facts, "torch": torch.__version__}
    if "cured" in runs:
        found["speedup"] = speedup(runs)
    (folder / "measured.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def speedup(runs: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Ill over cured, turn by turn: median, lowest, highest; and of the launching thread's CPU time."""
    pairs = list(zip(runs["sick"], runs["cured"], strict=True))
    walls = [ill["wall_s"] / cured["wall_s"] for ill, cured in pairs]
    cpu = [ill["thread_cpu_s"] / max(cured["thread_cpu_s"], 1e-9) for ill, cured in pairs]
    return {"median": statistics.median(walls), "low": min(walls), "high": max(walls), "cpu": statistics.median(cpu)}


@contextlib.contextmanager
def logged(path: Path) -> Iterator[None]:
    """The engine's log into a file, as `engine.logs` writes it."""
    handler = logging.FileHandler(path, mode="w", encoding="utf-8")
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger("engine")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


@contextlib.contextmanager
def device_state(path: Path) -> Iterator[None]:
    """`nvidia-smi` every 100 ms into a file, where there is one."""
    if shutil.which("nvidia-smi") is None:
        yield
        return
    with path.open("w", encoding="utf-8") as target:
        watcher = subprocess.Popen(
            ["nvidia-smi", f"--query-gpu={_SMI_FIELDS}", "--format=csv", "-lms", "100"],  # noqa: S607 - on the PATH
            stdout=target,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            watcher.kill()
            watcher.wait()


def record_for_nsys(patient: Patient, out: Path, workshop: Workshop) -> None:
    """One range for the ill job, and its place among the reports."""
    job = patient.sick(workshop)
    job.run()
    job.record(NsysRecorder())
    with (out / ORDER).open("a", encoding="utf-8") as order:
        order.write(f"{patient.name}\n")


def name_reports(out: Path) -> None:
    """Move `report.1.nsys-rep`, `report.2.nsys-rep`, ... into the folders of the patients that were recorded."""
    order = out / ORDER
    for place, name in enumerate(order.read_text("utf-8").split(), start=1):
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        (out / f"report.{place}.nsys-rep").rename(folder / "sick.nsys-rep")
    order.unlink()


def release() -> None:
    """Give memory back before the next patient."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def chosen(only: list[str]) -> list[Patient]:
    """Patients by name, or all."""
    unknown = set(only) - {patient.name for patient in PATIENTS}
    if unknown:
        raise SystemExit(f"no patient is called {', '.join(sorted(unknown))}")
    return [patient for patient in PATIENTS if not only or patient.name in only]


def is_finished(how: str, patient: Patient, out: Path) -> bool:
    """Tell whether an earlier run got this far, or nothing is to be done."""
    if how == "measure":
        return (out / patient.name / "measured.json").exists()
    return bool(patient.torch_profiler) or (out / patient.name / "sick.nsys-rep").exists()


def main() -> None:
    """Go through the patients until the time is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=("measure", "nsys", "name-reports", "out-of-memory"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/patients"))  # noqa: S108 - gigabytes of weights
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--small", action="store_true", help="tiny models, for a dry run")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.how == "name-reports":
        name_reports(arguments.out)
        return
    if arguments.how == "out-of-memory":
        for case in CASES:
            program = str(Path(__file__).with_name("out_of_memory.py"))
            subprocess.run([sys.executable, program, case, str(arguments.out / case)], check=False)
        return
    workshop = Workshop(arguments.scratch, "cuda" if torch.cuda.is_available() else "cpu", arguments.small)
    torch.set_grad_enabled(False)
    started_s = time.monotonic()
    for patient in chosen(arguments.only):
        if is_finished(arguments.how, patient, arguments.out):
            continue
        if time.monotonic() - started_s > 60 * arguments.minutes:
            sys.stdout.write("the time is over: run again for the others\n")
            break
        try:
            if arguments.how == "measure":
                measure(patient, arguments.out / patient.name, workshop)
            else:
                record_for_nsys(patient, arguments.out, workshop)
            said = "done"
        except Exception as error:  # noqa: BLE001 - one that fails must not cost the others
            said = f"{type(error).__name__}: {error}"[:300]
        sys.stdout.write(f"{time.monotonic() - started_s:6.0f} s {patient.name}: {said}\n")
        sys.stdout.flush()
        release()


if __name__ == "__main__":
    main()
