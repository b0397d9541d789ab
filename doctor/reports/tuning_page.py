"""A search for faster settings: every step, what was tried, what it won against what was promised."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from doctor.reports import wording
from doctor.reports.markdown import escaped
from doctor.reports.presentation import Presentation
from doctor.reports.text_console import as_text
from doctor.tuning.command_line import Change
from doctor.tuning.outcome import Promise, Speed, Step, Trial, Tuning, Verdict
from doctor.units import format_counted, format_speedup

SCHEMA = "doctor.tuning/1"
_WIDEST = 120
_UNKNOWN = "-"
_LEAST_SPREAD_TOLD = 0.005
_COLUMNS = ("finding", "change", "tokens/s", "speed-up", "promised", "verdict")


def render_tuning(tuning: Tuning, output: str, presentation: Presentation) -> str:
    """The search as text that ends in a line break.

    Args:
        tuning: what was tried.
        output: one of `TUNING_FORMATS`.
        presentation: what the receiver can show.

    Raises:
        KeyError: there is no such output.
    """
    return _RENDERERS[output](tuning, presentation)


def verdict(tuning: Tuning) -> str:
    """The whole search in a sentence."""
    first, last = tuning.steps[0].speed, tuning.steps[-1].speed
    runs = format_counted(tuning.run_count, "run")
    forbidden = _forbidden(tuning)
    if not tuning.changes and forbidden:
        return f"Nothing was changed: {forbidden}. {_speed(first)} tokens/s after {runs}, {tuning.ended}"
    if not tuning.changes:
        return f"Nothing to change: {_speed(first)} tokens/s after {runs}, {tuning.ended}"
    return (
        f"{format_speedup(tuning.speedup)} faster: {_speed(first)} -> {_speed(last)} tokens/s in {runs}; {tuning.ended}"
        f"{f'. {forbidden}' if forbidden else ''}"
    )


def _forbidden(tuning: Tuning) -> str:
    """What is advised and may not be changed; empty where nothing is."""
    return "; ".join(f"`{trial.setting}` is advised, but {trial.note}" for trial in tuning.forbidden)


def _terminal(tuning: Tuning, presentation: Presentation) -> str:
    parts: list[RenderableType] = [Text(wording.clean(verdict(tuning)), style="bold"), Text()]
    if tuning.changes:
        parts += [Text("Change on your command:"), *(Text(f"  {_plain(change)}") for change in tuning.changes), Text()]
    for place, step in enumerate(tuning.steps, start=1):
        parts += [Text(_heading(place, step), style="bold"), Text(f"  found: {_findings(step)}")]
        if step.trials:
            parts.append(_table(step.trials))
        parts.append(Text())
    return as_text(Group(*parts), min(presentation.width, _WIDEST), is_coloured=presentation.is_coloured)


def _table(trials: Iterable[Trial]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for trial in trials:
        style = "green" if trial.verdict is Verdict.KEPT else ""
        what = _what(trial)
        table.add_row(f"  {trial.verdict.value}", f"{wording.clean(trial.rule)}: {what}", style=style)
        table.add_row("", _came_of(trial))
    return table


def _came_of(trial: Trial) -> str:
    if trial.before is None or trial.after is None or trial.speedup is None:
        return wording.clean(trial.note)
    promised = _promised(trial.promise)
    return (
        f"{_speed(trial.before)} -> {_speed(trial.after)} tokens/s, {format_speedup(trial.speedup)}"
        f"{f'; promised {promised}' if promised != _UNKNOWN else ''}"
    )


def _markdown(tuning: Tuning, presentation: Presentation) -> str:
    del presentation
    lines = [f"## {escaped(verdict(tuning))}", ""]
    if tuning.changes:
        lines += ["Change on your command:", "", *(f"- `{_plain(change)}`" for change in tuning.changes), ""]
    for place, step in enumerate(tuning.steps, start=1):
        lines += list(_markdown_step(place, step))
    return "\n".join(lines).rstrip() + "\n"


def _markdown_step(place: int, step: Step) -> Iterator[str]:
    yield f"### {escaped(_heading(place, step))}"
    yield ""
    for found in step.findings:
        yield f"- {escaped(found.rule)} ({found.severity.label}): {escaped(wording.sentence(found.summary))}"
    if not step.findings:
        yield "Nothing found."
    yield ""
    if step.trials:
        yield f"| {' | '.join(_COLUMNS)} |"
        yield f"|{'---|' * len(_COLUMNS)}"
        for trial in step.trials:
            yield f"| {' | '.join(escaped(cell) for cell in _cells(trial))} |"
        yield ""


def _json(tuning: Tuning, presentation: Presentation) -> str:
    del presentation
    return json.dumps(_document(tuning), indent=1) + "\n"


def _document(tuning: Tuning) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "speedup": tuning.speedup,
        "changes": [_plain(change) for change in tuning.changes],
        "ended": tuning.ended,
        "runs": tuning.run_count,
        "steps": [_step(step) for step in tuning.steps],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "changes": [_plain(change) for change in step.changes],
        "tokens_per_s": _speeds(step.speed),
        "findings": [
            {"rule": found.rule, "severity": found.severity.label, "summary": wording.clean(found.summary)}
            for found in step.findings
        ],
        "trials": [_trial(trial) for trial in step.trials],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "rule": trial.rule,
        "setting": trial.setting,
        "changes": [_plain(change) for change in trial.changes],
        "verdict": trial.verdict.value,
        "speedup": trial.speedup,
        "promised": None if trial.promise is None else dataclasses.asdict(trial.promise),
        "before_tokens_per_s": _speeds(trial.before),
        "after_tokens_per_s": _speeds(trial.after),
        "pairs": trial.pairs,
        "note": wording.clean(trial.note),
    }


def _speeds(speed: Speed | None) -> dict[str, Any] | None:
    if speed is None:
        return None
    return {"median": speed.median, "lowest": speed.lowest, "highest": speed.highest, "runs": list(speed.tokens_per_s)}


def _heading(place: int, step: Step) -> str:
    what = ", ".join(_plain(change) for change in step.changes) or "as given"
    return f"Step {place}: {what}: {_speed(step.speed)} tokens/s"


def _findings(step: Step) -> str:
    told = ", ".join(f"{wording.clean(found.rule)} ({found.severity.label})" for found in step.findings)
    return told or "nothing"


def _cells(trial: Trial) -> tuple[str, ...]:
    return (
        wording.clean(trial.rule),
        _what(trial),
        _UNKNOWN if trial.after is None else _speed(trial.after),
        _UNKNOWN if trial.speedup is None else format_speedup(trial.speedup),
        _promised(trial.promise),
        f"{trial.verdict.value}{f': {wording.clean(trial.note)}' if trial.note else ''}",
    )


def _what(trial: Trial) -> str:
    return ", ".join(_plain(change) for change in trial.changes) or wording.clean(trial.setting)


def _promised(promise: Promise | None) -> str:
    if promise is None or promise.expected is None:
        return _UNKNOWN
    if promise.low is None or promise.high is None:
        return format_speedup(promise.expected)
    return f"{promise.expected:.2g}x ({promise.low:.2g} to {promise.high:.2g})"


def _speed(speed: Speed) -> str:
    """Median, and how far the runs lie apart."""
    spread = (speed.highest - speed.lowest) / 2 / speed.median
    return f"{speed.median:,.0f}{f' (+-{spread:.0%})' if spread >= _LEAST_SPREAD_TOLD else ''}"


def _plain(change: Change) -> str:
    return wording.clean(str(change))


_RENDERERS: dict[str, Callable[[Tuning, Presentation], str]] = {
    "terminal": _terminal,
    "json": _json,
    "markdown": _markdown,
}
TUNING_FORMATS = tuple(_RENDERERS)
