"""What a patient is: a job that is run ill and cured, and what a diagnosis of the ill one must say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Recorder(Protocol):
    """A profiler that records what runs between start and stop."""

    name: str
    """`nsys` or `torch`."""

    def around(self) -> AbstractContextManager[None]:
        """Record what runs inside."""
        ...


class Job(Protocol):
    """A program that is ready to run: loaded and warm."""

    def run(self) -> None:
        """Do the whole work once; the device is idle afterwards."""
        ...

    def record(self, recorder: Recorder) -> None:
        """Do the work, or as much of it as a recording needs, with some steady steps recorded."""
        ...

    def facts(self) -> dict[str, object]:
        """What the program itself counted, to prove that it is ill or cured."""
        ...


@dataclass(frozen=True)
class Workshop:
    """Where jobs find what they need.

    Attributes:
        folder: scratch folder that outlives a patient: checkpoints.
        device: cuda, or cpu for a dry run.
        is_small: tiny models, for a dry run.
    """

    folder: Path
    device: str
    is_small: bool


Build = Callable[[Workshop], Job]


@dataclass(frozen=True)
class Patient:
    """One documented problem, or a healthy program. Written down before anything is recorded or diagnosed.

    Attributes:
        name: folder of the sample.
        problem: what is done, in one line.
        sick: makes the ill job.
        cured: makes the same job without the problem; None for healthy programs.
        first: rule that must come first on a recording of the ill job; None where nothing above low may be found.
        cures: rule whose promised win is compared with the measured one; `first` where empty.
        allowed: rules that may follow.
        ruled_out: rules that must be cleared.
        log_only: the problem shows in the log, not in a recording of a few steps.
        compound: the cure changes more than the problem, so its measured win is compared with nothing.
        half: `fit` where constants may be tuned on it, `test` where they may not.
        torch_profiler: options of `torch.profiler.profile`. Where there are some, they are the problem: nsys records
            nothing then.
    """

    name: str
    problem: str
    sick: Build
    cured: Build | None
    first: str | None
    cures: str = ""
    allowed: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    log_only: bool = False
    compound: bool = False
    half: str = "test"
    torch_profiler: Mapping[str, bool] = field(default_factory=dict)
