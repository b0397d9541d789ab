"""The fixture `diagnosis`: evidence named in a test, diagnosed once a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from doctor.pytest_plugin.telling import failure, properties

if TYPE_CHECKING:
    from doctor.diagnosis.outcome import Diagnosis, RankedFinding, RuledOut

Record = Callable[[str, object], None]
"""Takes a property of the test's report."""


class UnhealthyError(AssertionError):
    """The evidence is less healthy than the test demands."""


@dataclass(frozen=True)
class Diagnosed:
    """A diagnosis that can be asserted on; `full` is all of it."""

    full: Diagnosis
    subject: str

    @property
    def findings(self) -> tuple[RankedFinding, ...]:
        """What is wrong, the costliest first."""
        return self.full.findings

    @property
    def vitals(self) -> dict[str, float | None]:
        """Figures of the window, None where the evidence does not tell."""
        return self.full.vitals

    @property
    def ruled_out(self) -> tuple[RuledOut, ...]:
        """What looks guilty and is not."""
        return self.full.ruled_out

    def assert_healthy(self, at_most: str = "low", allow: tuple[str, ...] | list[str] = (), **vitals: object) -> None:
        """Fail the test where the evidence is less healthy than this.

        Args:
            at_most: worst severity that is let pass: info, low, medium, high or critical.
            allow: ids of rules that are let pass.
            vitals: bounds, such as `gpu_busy=0.6` (at least) or `syncs_per_step=1` (at most).

        Raises:
            UnhealthyError: an `AssertionError` whose message shows the findings with their evidence.
            UsageError: an argument is unusable.
        """
        __tracebackhide__ = True
        from doctor.checks.judging import breaches  # noqa: PLC0415 - only tests that use doctor pay for it
        from doctor.pytest_plugin.marks import demand_of  # noqa: PLC0415

        found = breaches(self.full, demand_of({"at_most": at_most, "allow": allow, **vitals}))
        if found:
            raise UnhealthyError(failure(found, self.full, self.subject))


class Diagnoses:
    """What the fixture gives: `of(PATH...)`."""

    def __init__(self, folder: Path, record: Record, known: dict[object, Diagnosis]) -> None:
        self._folder = folder
        self._record = record
        self._known = known

    def of(
        self,
        *paths: str | os.PathLike[str],
        window: tuple[int, int] | None = None,
        range_name: str | None = None,
        unprofiled_seconds: float | None = None,
    ) -> Diagnosed:
        """Diagnose evidence: files, folders or patterns, from the test's own folder or from where pytest was started.

        Args:
            paths: evidence of any kind, in any mix.
            window: start and end in ns on the recording's clock, in place of the steady window.
            range_name: name of a range; the window is from the first such range to the last.
            unprofiled_seconds: measured time of the same window without the profiler.

        Raises:
            DoctorError: the evidence or the arguments are unusable.
        """
        from doctor import api  # noqa: PLC0415 - only tests that use doctor pay for it
        from doctor.diagnosis.options import DiagnosisOptions  # noqa: PLC0415
        from doctor.errors import UsageError  # noqa: PLC0415

        if not paths:
            raise UsageError("diagnosis.of() takes the evidence: files, folders or patterns")
        named = tuple(self._place(os.fspath(path)) for path in paths)
        options = DiagnosisOptions(window, range_name, unprofiled_seconds)
        key = (tuple((name, _state(name)) for name in named), options)
        if key not in self._known:
            self._known[key] = api.diagnose(*named, options=options)
        for name, value in properties(self._known[key]):
            self._record(name, value)
        return Diagnosed(self._known[key], ", ".join(Path(name).name for name in named))

    def _place(self, name: str) -> str:
        beside = self._folder / name
        return str(beside) if beside.exists() else name


def _state(name: str) -> tuple[int, int] | None:
    """Tells a file that was written again from the one that was diagnosed; folders and patterns are read each time."""
    path = Path(name)
    if not path.is_file():
        return (id(object()), 0)
    status = path.stat()
    return status.st_mtime_ns, status.st_size
