"""The search: the findings of each run say what to try next, and only what wins is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from doctor import api
from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.errors import UsageError
from doctor.rule import Severity
from doctor.tuning.command_line import CommandLine, Manual, Option, Setting, changes
from doctor.tuning.conditions import FREE
from doctor.tuning.outcome import Found, Promise, Speed, Step, Trial, Tuning, Verdict
from doctor.tuning.program import Measured, Program, Refused
from doctor.units import format_counted

TARGET = "engine"
"""Fixes of this target are options of `python -m engine bench`."""
_FINDINGS_TOLD = 8


@dataclass(frozen=True)
class Plan:
    """How to search.

    Attributes:
        repeats: runs without a profiler in each start.
        least_win: a setting is kept from this share of more speed on.
        at_least: findings below are not tried.
        most_runs: starts of the program at most.
        timeout_s: of one start.
        rules: folder with rules of your own.
    """

    repeats: int = 3
    least_win: float = 0.02
    at_least: Severity = Severity.LOW
    most_runs: int = 20
    timeout_s: float = 900.0
    rules: Path | None = None


@dataclass(frozen=True)
class _Suggestion:
    rule: str
    text: str
    setting: Setting
    promise: Promise | None


def tune(command: Sequence[str], plan: Plan, folder: Path, tell: Callable[[str], None]) -> Tuning:
    """Run a command, try what its diagnosis suggests, keep what wins, and go on until nothing does.

    Args:
        command: program and arguments.
        plan: how to search.
        folder: an existing folder for recordings and output.
        tell: called with a line after each run.

    Raises:
        UsageError: the command does not run as it was given, or prints no benchmark.
        DoctorError: a recording cannot be read.
    """
    return _Search(CommandLine.parse(command), plan, folder, tell).run()


class _Search:
    def __init__(self, given: CommandLine, plan: Plan, folder: Path, tell: Callable[[str], None]) -> None:
        self._given = given
        self._plan = plan
        self._tell = tell
        self._program = Program(folder, plan.repeats, plan.timeout_s)
        self._manual = Manual()
        self._fixed = FREE
        self._failed: set[Setting] = set()
        self._tried: set[frozenset[Option]] = set()

    def run(self) -> Tuning:
        self._manual = self._program.manual(self._given)
        self._fixed = self._program.fixed(self._given)
        self._tried.add(frozenset(self._given.options))
        here = self._program.run(self._given)
        if isinstance(here, Refused):
            raise UsageError(f"the command does not run as it was given: {here.because}")
        self._tell(f"as given: {here.speed.median:,.0f} tokens/s")
        steps: list[Step] = []
        while True:
            step, better = self._step(here)
            steps.append(step)
            if better is None:
                return Tuning(tuple(steps), self._why_it_ends(step), self._program.run_count)
            here = better

    def _step(self, here: Measured) -> tuple[Step, Measured | None]:
        """Diagnose one command and try what is suggested, up to the first that wins."""
        diagnosis = api.diagnose(*here.evidence, rules=self._plan.rules)
        trials: list[Trial] = []
        better: Measured | None = None
        for suggestion in self._suggestions(diagnosis):
            if because := self._fixed.forbids(suggestion.setting):
                if all(trial.note != because for trial in trials):
                    trials.append(Trial(suggestion.rule, suggestion.text, (), Verdict.FORBIDDEN, note=because))
                continue
            line = here.line.changed_by(suggestion.setting, self._manual)
            if line == here.line or frozenset(line.options) in self._tried or suggestion.setting in self._failed:
                continue
            if self._program.run_count >= self._plan.most_runs:
                break
            trial, there = self._try(suggestion, here, line)
            trials.append(trial)
            self._tell(_line(trial))
            if trial.verdict is Verdict.KEPT:
                better = there
                break
        found = tuple(Found(one.rule, one.severity, one.summary) for one in diagnosis.findings[:_FINDINGS_TOLD])
        return Step(changes(self._given, here.line), here.speed, found, tuple(trials)), better

    def _suggestions(self, diagnosis: Diagnosis) -> Iterator[_Suggestion]:
        for finding in diagnosis.findings:
            if finding.severity < self._plan.at_least:
                continue
            for fix in finding.fixes:
                setting = Setting.parse(fix.setting) if fix.target == TARGET else None
                if setting is not None and self._manual.offers(setting):
                    yield _Suggestion(finding.rule, fix.setting, setting, _promise(finding))

    def _try(self, suggestion: _Suggestion, here: Measured, line: CommandLine) -> tuple[Trial, Measured | None]:
        self._tried.add(frozenset(line.options))
        there = self._program.run(line)
        what = (suggestion.rule, suggestion.text, changes(here.line, line))
        if isinstance(there, Refused):
            return Trial(*what, Verdict.REFUSED, note=there.because), None
        pairs = [(here.speed, there.speed)]
        if self._is_unclear(*pairs[0]) and self._program.run_count + 2 <= self._plan.most_runs:
            pairs += self._pair(here.line, line)
        has_won = all(self._wins(before, after) for before, after in pairs)
        before, after = (sum(speeds[1:], speeds[0]) for speeds in zip(*pairs, strict=True))
        if not has_won:
            self._failed.add(suggestion.setting)
        verdict = Verdict.KEPT if has_won else Verdict.NO_WIN
        trial = Trial(*what, verdict, before, after, len(pairs), suggestion.promise)
        return trial, Measured(line, after, there.evidence)

    def _pair(self, before: CommandLine, after: CommandLine) -> list[tuple[Speed, Speed]]:
        """Both once more, in turn: a machine that became faster meanwhile shows in both."""
        runs = (self._program.run(before), self._program.run(after))
        speeds = [run.speed for run in runs if isinstance(run, Measured)]
        return [(speeds[0], speeds[1])] if len(speeds) == len(runs) else []

    def _wins(self, before: Speed, after: Speed) -> bool:
        return after.median >= (1 + self._plan.least_win) * before.median

    def _is_unclear(self, before: Speed, after: Speed) -> bool:
        """It looks like a win, and yet some run with it was no faster than some run without."""
        return self._wins(before, after) and after.lowest <= before.highest

    def _why_it_ends(self, last: Step) -> str:
        if self._program.run_count >= self._plan.most_runs:
            return f"the limit of {format_counted(self._plan.most_runs, 'start')} is reached"
        if any(trial.verdict is not Verdict.FORBIDDEN for trial in last.trials):
            return "nothing that was tried is faster"
        return "the diagnosis suggests no other option" if last.findings else "the diagnosis finds nothing"


def _promise(finding: RankedFinding) -> Promise | None:
    gain = finding.gain
    if gain is None or gain.speedup_bound is None:
        return None
    return Promise(gain.speedup_expected, gain.speedup_low, gain.speedup_high, gain.speedup_bound)


def _line(trial: Trial) -> str:
    what = ", ".join(map(str, trial.changes))
    if trial.after is None or trial.speedup is None:
        return f"{trial.rule}: {what}: {trial.verdict}: {trial.note}"
    return f"{trial.rule}: {what}: {trial.after.median:,.0f} tokens/s, {trial.speedup:.2f}x: {trial.verdict}"
