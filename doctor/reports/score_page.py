"""A score for people and scripts: confusion tables, what was missed or alarmed, promised against measured wins."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from doctor.reports import wording
from doctor.reports.markdown import escaped
from doctor.reports.presentation import Presentation
from doctor.reports.text_console import as_text
from doctor.rule import Severity
from doctor.scoring.outcome import Judged, Promise
from doctor.scoring.tally import Accuracy, Score, Tally

SCHEMA = "doctor.score/1"
_WIDEST = 140
_GAP = 2
_INDENT = 2
_UNKNOWN, _HEALTHY = "-", "healthy"
Row = tuple[str, ...]
_TALLY_HEAD = ("", "diagnoses", "first right", "missed", "false alarms")
_ACCURACY_HEAD = (
    "",
    "wins",
    "promised",
    "median |log error|",
    "worst",
    "inside range",
    "range width",
    "bound/measured",
)
_PROMISE_HEAD = ("sample", "recorder", "half", "rule", "measured", "promised", "range", "bound", "log error")
_WRONG_HEAD = ("sample", "evidence", "expected", "found", "missed", "false alarms")


@dataclasses.dataclass(frozen=True)
class _Block:
    """A heading with a table."""

    title: str
    head: Row
    rows: tuple[Row, ...]

    @property
    def width(self) -> int:
        """Columns of a screen that the table fills."""
        return sum(max(map(len, column)) + _GAP for column in zip(self.head, *self.rows, strict=True)) - _GAP


def render_score(score: Score, output: str, presentation: Presentation) -> str:
    """The score as text that ends in a line break.

    Args:
        score: of a folder of samples.
        output: one of `SCORE_FORMATS`.
        presentation: what the receiver can show.

    Raises:
        KeyError: there is no such output.
    """
    return _RENDERERS[output](score, presentation)


def verdict(score: Score) -> str:
    """The score in a sentence."""
    right = sum(result.is_first_right for result in score.results)
    wrong = sum(not result.is_right for result in score.results)
    rest = "nothing missed" if not wrong else f"{wrong} with something wrong"
    return f"{right} of {len(score.results)} diagnoses have the right first finding, {rest}"


def _terminal(score: Score, presentation: Presentation) -> str:
    parts: list[RenderableType] = [Text(verdict(score), style="bold green" if score.is_right else "bold red"), Text()]
    width = min(presentation.width, _WIDEST)
    for block in _blocks(score):
        shown = _table(block) if block.width <= width else _listed(block)
        parts += [Text(block.title, style="bold"), shown, Text()]
    return as_text(Group(*parts), width, is_coloured=presentation.is_coloured)


def _listed(block: _Block) -> RenderableType:
    """A table that is wider than the screen: a paragraph a row, which breaks between words."""
    parts: list[RenderableType] = []
    for name, *cells in block.rows:
        words = "; ".join(f"{head} {cell}" for head, cell in zip(block.head[1:], cells, strict=True))
        parts += [Text(name), Padding(Text(words), (0, 0, 0, _INDENT))]
    return Group(*parts)


def _table(block: _Block) -> Table:
    table = Table.grid(padding=(0, _GAP, 0, 0))
    for _ in block.head:
        table.add_column(no_wrap=True)
    table.add_row(*block.head, style="bold")
    for row in block.rows:
        table.add_row(*row)
    return table


def _markdown(score: Score, presentation: Presentation) -> str:
    del presentation
    lines = [f"## {escaped(verdict(score))}", ""]
    for block in _blocks(score):
        lines += [f"### {escaped(block.title)}", "", f"| {' | '.join(map(escaped, block.head))} |"]
        lines += [f"|{'---|' * len(block.head)}", *(f"| {' | '.join(map(escaped, row))} |" for row in block.rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _blocks(score: Score) -> Iterator[_Block]:
    """What both pages show, in their order; empty tables are left out."""
    recorders, halves = score.by_recorder(), score.by_half()
    yield _Block("By recorder", _TALLY_HEAD, tuple(map(_tally_row, recorders)))
    yield _Block("By half", _TALLY_HEAD, tuple(map(_tally_row, halves)))
    for recorder in recorders:
        yield _Block(f"First finding, {recorder.name}", ("expected", "found", "diagnoses"), _confusion(score, recorder))
    blocks = (
        _Block("Wrong", _WRONG_HEAD, tuple(_wrong_row(one) for one in score.results if not one.is_right)),
        _Block("Low false alarms", _WRONG_HEAD, tuple(_wrong_row(one) for one in score.results if _is_low(one))),
        _Block("Promised wins", _ACCURACY_HEAD, _accuracy_rows((*recorders, *halves))),
        _Block("Promised against measured", _PROMISE_HEAD, tuple(_promise_rows(score.results))),
    )
    yield from (block for block in blocks if block.rows)


def _is_low(result: Judged) -> bool:
    return result.is_right and bool(result.alarms)


def _tally_row(tally: Tally) -> Row:
    return (tally.name, str(tally.count), f"{tally.first_right} of {tally.count}", str(tally.missed), _alarms(tally))


def _alarms(tally: Tally) -> str:
    return ", ".join(f"{count} {severity.label}" for severity, count in tally.alarms.items()) or "none"


def _confusion(score: Score, recorder: Tally) -> tuple[Row, ...]:
    counts = score.confusion(recorder.name)
    ordered = sorted(counts.items(), key=lambda entry: (entry[0][0] or "", -entry[1], entry[0][1] or ""))
    return tuple((_rule(expected), _rule(found), str(count)) for (expected, found), count in ordered)


def _rule(rule: str | None) -> str:
    return _HEALTHY if rule is None else wording.clean(rule)


def _wrong_row(result: Judged) -> Row:
    found = f"unreadable: {wording.clean(result.error)}" if result.error else _rule(result.found)
    alarms = ", ".join(f"{wording.clean(alarm.rule)} ({alarm.severity.label})" for alarm in result.alarms)
    files = ", ".join(wording.clean(name) for name in result.files)
    missed = ", ".join(map(wording.clean, result.missed))
    return (wording.clean(result.sample), files, _rule(result.expected), found, missed or _UNKNOWN, alarms or _UNKNOWN)


def _accuracy_rows(tallies: Iterable[Tally]) -> tuple[Row, ...]:
    return tuple((tally.name, *_accuracy(tally.accuracy)) for tally in tallies if tally.accuracy.measured_count)


def _accuracy(accuracy: Accuracy) -> Row:
    worst = _UNKNOWN
    if accuracy.worst is not None:
        sample, promise = accuracy.worst
        worst = f"{_number(promise.log_error, '+.2f')} {wording.clean(sample)}"
    return (
        str(accuracy.measured_count),
        str(accuracy.promised_count),
        _number(accuracy.median_abs_log_error),
        worst,
        _number(accuracy.share_inside, ".0%"),
        _number(accuracy.median_width),
        _number(accuracy.median_bound_ratio),
    )


def _promise_rows(results: Sequence[Judged]) -> Iterator[Row]:
    for result in results:
        for promise in result.promises:
            measured = promise.measured
            yield (
                wording.clean(result.sample),
                result.recorder,
                result.half.value,
                wording.clean(promise.rule),
                f"{measured.median:.2f}{_range(measured.low, measured.high)}",
                _number(promise.expected),
                _range(promise.low, promise.high).strip() or _UNKNOWN,
                _number(promise.bound),
                _number(promise.log_error, "+.2f"),
            )


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"


def _number(value: float | None, form: str = ".2f") -> str:
    return _UNKNOWN if value is None else format(value, form)


def _json(score: Score, presentation: Presentation) -> str:
    del presentation
    document = {
        "schema": SCHEMA,
        "right": score.is_right,
        "by_recorder": [_plain_tally(tally) for tally in score.by_recorder()],
        "by_half": [_plain_tally(tally) for tally in score.by_half()],
        "confusion": {
            tally.name: [
                {"expected": expected, "found": found, "count": count}
                for (expected, found), count in score.confusion(tally.name).items()
            ]
            for tally in score.by_recorder()
        },
        "diagnoses": [_plain_result(result) for result in score.results],
    }
    return json.dumps(document, indent=1) + "\n"


def _plain_tally(tally: Tally) -> dict[str, Any]:
    accuracy = tally.accuracy
    return {
        "name": tally.name,
        "diagnoses": tally.count,
        "first_right": tally.first_right,
        "missed": tally.missed,
        "false_alarms": {severity.label: tally.alarms.get(severity, 0) for severity in Severity},
        "promises": {
            "measured": accuracy.measured_count,
            "promised": accuracy.promised_count,
            "median_abs_log_error": accuracy.median_abs_log_error,
            "worst": None if accuracy.worst is None else {"sample": accuracy.worst[0], **_plain(accuracy.worst[1])},
            "share_inside": accuracy.share_inside,
            "median_width": accuracy.median_width,
            "median_bound_ratio": accuracy.median_bound_ratio,
            "broken_bounds": [{"sample": sample, **_plain(promise)} for sample, promise in accuracy.broken_bounds],
        },
    }


def _plain_result(result: Judged) -> dict[str, Any]:
    return {
        "sample": result.sample,
        "files": list(result.files),
        "recorder": result.recorder,
        "half": result.half.value,
        "expected": result.expected,
        "found": result.found,
        "right": result.is_right,
        "missed": list(result.missed),
        "false_alarms": [{"rule": alarm.rule, "severity": alarm.severity.label} for alarm in result.alarms],
        "promises": [_plain(promise) for promise in result.promises],
        "error": result.error or None,
    }


def _plain(promise: Promise) -> dict[str, Any]:
    return {**dataclasses.asdict(promise), "log_error": promise.log_error, "inside": promise.is_inside}


_RENDERERS: dict[str, Callable[[Score, Presentation], str]] = {
    "terminal": _terminal,
    "json": _json,
    "markdown": _markdown,
}
SCORE_FORMATS = tuple(_RENDERERS)
