"""One recording from start to end: run the command, sample vitals beside it, keep what may be kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from doctor.errors import DoctorError, UsageError
from doctor.nsight import Nsys
from doctor.recording import torch_injection
from doctor.recording.nsys_command import REPORT, attach_command, nsys_command
from doctor.recording.plan import Plan
from doctor.recording.supervision import Ending, supervise
from doctor.vitals.sampler import VitalsSampler

VITALS = "vitals.jsonl"
_UNFINISHED, _PRIVATE = ".unfinished", ".private"
_IMPORT_SECONDS = 600

Clean = Callable[[Path, Path], object]
"""Writes a copy of evidence without environment, command lines, host and user names."""


@dataclass(frozen=True)
class Recorded:
    """What a recording left.

    Attributes:
        ending: of the command.
        evidence: files in the case folder.
        notes: what went otherwise than asked, a line each.
    """

    ending: Ending
    evidence: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def has_recording(self) -> bool:
        """True where there is more than vitals."""
        return any(path.name != VITALS for path in self.evidence)


@dataclass(frozen=True)
class _Run:
    """How the command ended, what is to say of it and of the vitals, and whether devices were sampled."""

    ending: Ending
    notes: tuple[str, ...]
    has_devices: bool


def record_with_nsys(nsys: Nsys, plan: Plan, target: Sequence[str] | int, clean: Clean) -> Recorded:
    """Record a command, or the process of an id, with nsys.

    Raises:
        UsageError: the folder or the command is unusable.
        ToolMissingError: this nsys cannot attach.
    """
    with _work_folder(plan.folder) as work:
        command = (
            attach_command(nsys.program, plan, work, target)
            if isinstance(target, int)
            else nsys_command(nsys.program, plan, work, target)
        )
        run = _run(command, dict(os.environ), plan, work)
        report = work / f"{REPORT}.nsys-rep"
        if not report.exists() and nsys.importer is not None:
            _import_with(nsys.importer, work)
        kept, notes = _keep((report,) if report.exists() else (), plan.folder, clean)
        if not report.exists():
            notes += (f"{nsys.program} left no report: its own words are above",)
        return _recorded(plan, run, kept, notes)


def record_with_torch(plan: Plan, command: Sequence[str], clean: Clean) -> Recorded:
    """Record a Python command with the profiler of torch.

    Raises:
        UsageError: the folder or the command is unusable.
    """
    with _work_folder(plan.folder) as work:
        environment = torch_injection.injected_environment(os.environ, work, plan.window)
        run = _run(command, environment, plan, work)
        left = torch_injection.collect(work, plan.window)
        kept, notes = _keep(left.traces, plan.folder, clean)
        if not left.traces:
            notes += (f"nothing was recorded: {left.why_none}",)
        return _recorded(plan, run, kept, notes)


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """A folder nobody else reads, inside the case's, for what may still hold private things."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already: name a new folder, or empty it first")
    work = folder / _UNFINISHED
    try:
        work.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror or error}") from error
    try:
        yield work.resolve()
    except BaseException:
        (folder / VITALS).unlink(missing_ok=True)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def _run(command: Sequence[str], environment: dict[str, str], plan: Plan, work: Path) -> _Run:
    """Run the command with vitals sampled beside it."""
    running: list[int] = []
    sampler = VitalsSampler(plan.folder / VITALS, recorded_pid=lambda: running[0] if running else None)
    with sampler:
        ending = supervise(command, environment, plan.limits, work, running.append)
    sampled = sampler.outcome
    stopped = (f"the command was told to end: {ending.stopped_by}",) if ending.stopped_by else ()
    unsampled = (f"vitals of devices are missing: {sampled.note}",) if sampled.note else ()
    return _Run(ending, (*stopped, *unsampled), sampled.has_devices)


def _keep(files: Sequence[Path], folder: Path, clean: Clean) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Copies of the files without private things; what cannot be copied so is set aside, where discovery looks not."""
    kept: list[Path] = []
    notes: list[str] = []
    for file in files:
        packed = file.name if file.suffix == ".nsys-rep" else f"{file.name}.gz"
        try:
            clean(file, folder / packed)
            kept.append(folder / packed)
        except DoctorError as error:
            aside = folder / _PRIVATE
            aside.mkdir(mode=0o700, exist_ok=True)
            file.replace(aside / file.name)
            notes.append(f"{aside / file.name} may hold environment and command lines: {error.message}")
    return tuple(kept), tuple(notes)


def _import_with(importer: Path, work: Path) -> None:
    """Make the report of an nsys that does not find its own importer."""
    stream, report = work / f"{REPORT}.qdstrm", work / f"{REPORT}.nsys-rep"
    if stream.exists():
        command = [str(importer), "-i", str(stream), "-o", str(report)]
        subprocess.run(command, stdout=subprocess.DEVNULL, timeout=_IMPORT_SECONDS, check=False)


def _recorded(plan: Plan, run: _Run, kept: tuple[Path, ...], notes: tuple[str, ...]) -> Recorded:
    """What is left; where nothing was recorded, vitals of the machine alone are nothing to keep."""
    vitals, aside = plan.folder / VITALS, plan.folder / _PRIVATE
    if not kept and not aside.exists() and not run.has_devices:
        vitals.unlink(missing_ok=True)
    evidence = (*kept, vitals) if vitals.exists() else kept
    return Recorded(run.ending, evidence, (*run.notes, *notes))
