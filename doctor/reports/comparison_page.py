"""A comparison for people: figures side by side, findings gone and new, kernels slower and faster."""

from __future__ import annotations

import re

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from doctor.comparison.outcome import CONFIDENCE, LEAST_TOLD, Comparison, KernelChange, LeftOut, Speed, Unseen
from doctor.reports import wording
from doctor.reports.collecting import recipe_for
from doctor.reports.presentation import Presentation
from doctor.reports.text_console import as_text
from doctor.units import format_bytes, format_count, format_ns, format_share, format_speedup

_WIDEST = 120
_TIME_WIDTH = 7
_UNKNOWN = "-"
_IS_TIME = re.compile(r"^seconds$|_seconds$|(?<!_per)_s(\.|$)")
_UNIT = re.compile(r"_seconds$|_us$|_bytes$|(?<!_per)_s(?=\.|$)")
_RECORDER_RULE = "profiler-distorted"
_LEAST_RECORDER_SHARE = 0.05
_OR_THE_CURE = "Another model would do that, and so may a cure that fuses, splits or spreads the work."
_UNCOMPARED = "Kernels are not compared, so that other work in the two would not be noticed"
_SHOW_NODES = "--cuda-graph-trace=node records them"
_SUBJECTS = {"benchmark": "The benchmark", "all": "A step", "usual": "A usual step"}
_SHARES = {"gpu_busy", "exposed_communication", "exposed_copy"}


def comparison_page(comparison: Comparison, presentation: Presentation) -> str:
    """The comparison as text that ends in a line break."""
    parts: list[RenderableType] = _first_lines(comparison)
    if comparison.speeds:
        parts += [_speeds(comparison.speeds), Text()]
    parts += [Text(line) for line in _left_out_lines(comparison)]
    parts += [_figures(comparison), Text()] if _has_common_figures(comparison) else []
    titles = ("Only in BEFORE", "Only in AFTER", "In both") if comparison.unlike else ("Gone", "New", "Still there")
    for title, rules in zip(titles, (comparison.gone, comparison.new, comparison.stayed), strict=True):
        if rules:
            parts.append(Text(f"{title}: {', '.join(rules)}"))
    parts += [Text(line) for line in _unseen_lines(comparison)]
    if comparison.kernels:
        parts += [Text(), _kernels(comparison)]
    for side in comparison.hidden_in:
        parts.append(Text(f"{_UNCOMPARED}: {side.upper()} hides them inside CUDA graphs ({_SHOW_NODES})."))
    return as_text(Group(*parts), min(presentation.width, _WIDEST), is_coloured=presentation.is_coloured)


def _first_lines(comparison: Comparison) -> list[RenderableType]:
    """Whether the two can be compared, and what the comparison comes to."""
    lines: list[RenderableType] = []
    if comparison.unlike:
        reasons = "; ".join(map(wording.clean, (*comparison.unlike, *comparison.doubts)))
        lines.append(Text.assemble(("Not the same work: ", "bold yellow"), f"{reasons}. No speed-up is told."))
    elif comparison.doubts:
        reasons = "; ".join(map(wording.clean, comparison.doubts))
        lines.append(Text.assemble(("Perhaps not the same work: ", "bold yellow"), f"{reasons}. {_OR_THE_CURE}"))
    if comparison.recorders:
        words = f"{recorders_named(comparison)}. Each slows the host in its own way; the intervals allow for that."
        lines.append(Text.assemble(("Two recorders: ", "bold yellow"), words))
    verdict = _verdict(comparison)
    if verdict is not None:
        lines.append(verdict)
    return [*lines, Text()] if lines else []


def recorders_named(comparison: Comparison) -> str:
    """What each run was recorded by, where they differ."""
    sides = zip(comparison.recorders or (), ("BEFORE", "AFTER"), strict=False)
    return ", ".join(f"{recipe_for(kind).kind} in {side}" for kind, side in sides)


def _has_common_figures(comparison: Comparison) -> bool:
    return any(change.before is not None and change.after is not None for change in comparison.figures)


def _verdict(comparison: Comparison) -> Text | None:
    """The change of the kind of step with most time, else of the window, in one sentence; None where unknown."""
    if not _has_common_figures(comparison):
        return Text("The two have no figure in common: only findings are compared.")
    if comparison.is_identical:
        return Text("No difference: every figure of the two is the same.", "bold")
    for speed in comparison.speeds[:1]:
        subject = _SUBJECTS.get(speed.subject, f"A {wording.clean(speed.subject)} step")
        if not speed.is_beyond_chance:
            return _without_difference(comparison, subject, speed)
        return _sentence(comparison, subject, speed.before_seconds, speed.after_seconds)
    figures = {change.name: change for change in comparison.figures}
    for name, subject in (("step_seconds", "A step"), ("window_seconds", "The recording")):
        change = figures.get(name)
        if change is not None and change.before and change.after:
            return _sentence(comparison, subject, change.before, change.after)
    return None


def _without_difference(comparison: Comparison, subject: str, speed: Speed) -> Text:
    times = format_ns(speed.before_seconds * 1e9), format_ns(speed.after_seconds * 1e9)
    took = f"takes {times[0]} in both" if times[0] == times[1] else f"took {times[0]} and now takes {times[1]}"
    chance = "chance and what the recorders take" if comparison.recorders else "chance"
    if not speed.has_interval and abs(speed.speedup - 1.0) >= LEAST_TOLD:
        counts = f"{speed.before_count} and {speed.after_count}"
        return Text.assemble(f"{subject} {took}: ", (f"too few to tell that from {chance} ({counts} of them)", "bold"))
    beyond = f" beyond {chance}" if speed.has_interval and speed.speedup != 1.0 else ""
    return Text.assemble(f"{subject} {took}: ", (f"no difference{beyond}", "bold"))


def _sentence(comparison: Comparison, subject: str, before_seconds: float, after_seconds: float) -> Text:
    times = format_ns(before_seconds * 1e9), format_ns(after_seconds * 1e9)
    if comparison.unlike:
        return Text(f"{subject} takes {times[0]} in BEFORE and {times[1]} in AFTER.")
    factor = before_seconds / after_seconds
    pace = f"{format_speedup(max(factor, 1 / factor))} {'faster' if factor >= 1 else 'slower'}"
    style = "bold" if comparison.doubts or comparison.recorders else "bold green" if factor >= 1 else "bold red"
    return Text.assemble(
        f"{subject} took {times[0]} and now takes {times[1]}: ",
        (pace, style),
        _as_recorded(comparison, is_faster=factor >= 1),
    )


def _as_recorded(comparison: Comparison, *, is_faster: bool) -> str:
    """What the recorder has to do with it, beside the figure that it bends."""
    before, after = (share or 0.0 for share in comparison.recorder_shares)
    if abs(before - after) >= _LEAST_RECORDER_SHARE:
        share, side = max((before, "BEFORE"), (after, "AFTER"))
        change = "less" if (before > after) == is_faster else "more"
        return f" as recorded, {change} without the recorder, which took {format_share(share)} of {side}"
    if _RECORDER_RULE in (*comparison.gone, *comparison.new, *comparison.stayed):
        return " as recorded, and the recorder slows launches"
    return ""


def _unseen_lines(comparison: Comparison) -> list[str]:
    """Findings that only one of the two could have shown, by what the other lacks."""
    rules: dict[tuple[str, str], list[str]] = {}
    for one in comparison.unseen:
        rules.setdefault((one.side, _lack(one)), []).append(one.rule)
    return [
        f"Could not be seen in {side.upper()}, since {because}: {', '.join(names)}"
        for (side, because), names in rules.items()
    ]


def _lack(one: Unseen) -> str:
    kinds = dict.fromkeys(recipe_for(kind).kind for kind in one.needs)
    return f"it holds no {' or '.join(kinds)}" if kinds else wording.clean(one.because)


def _left_out_lines(comparison: Comparison) -> list[str]:
    """Steps that only one run has, and that the figures of whole windows hold them all the same."""
    parts = []
    for side in ("before", "after"):
        mine = [_counted(one) for one in comparison.left_out if one.side == side]
        parts += [f"{' and '.join(mine)} of {side.upper()}"] if mine else []
    if not parts:
        return []
    return [
        f"Only like steps are compared. Left out: {', '.join(parts)}.",
        "The figures below are of whole windows, with what was left out.",
        "",
    ]


def _counted(one: LeftOut) -> str:
    noun = "step" if one.count == 1 else "steps"
    return f"{format_count(one.count)} {wording.clean(one.kind)} {noun} ({format_ns(one.seconds * 1e9)})"


def _figures(comparison: Comparison) -> Table:
    table = _table("figure", "before", "after", "after/before")
    for change in comparison.figures:
        if change.name == "step_seconds" and comparison.speeds:
            continue  # the table of steps has it
        ratio = _UNKNOWN if change.ratio is None else f"{change.ratio:.2f}"
        table.add_row(
            _label(change.name), _worded(change.name, change.before), _worded(change.name, change.after), ratio
        )
    return table


def _speeds(speeds: tuple[Speed, ...]) -> Table:
    table = _table("steps", "before", "after", "mean before", "mean after", f"before/after ({CONFIDENCE:.0%} interval)")
    for speed in speeds:
        interval = "" if speed.low is None or speed.high is None else f" ({speed.low:.2f}-{speed.high:.2f})"
        table.add_row(
            wording.clean(speed.subject),
            format_count(speed.before_count),
            format_count(speed.after_count),
            format_ns(speed.before_seconds * 1e9),
            format_ns(speed.after_seconds * 1e9),
            f"{speed.speedup:.2f}x{interval}",
        )
    return table


def _table(first: str, *others: str) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for _ in others:
        table.add_column(justify="right")
    table.add_row(first, *others, style="bold")
    return table


def _kernels(comparison: Comparison) -> Table:
    kernels = comparison.kernels
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for _ in range(3):
        table.add_column(justify="right", min_width=_TIME_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_row("before", "after", "shape", f"kernel ({_kernel_times(comparison)})", style="bold")
    for change in kernels:
        before, after = (
            (change.before_ns, change.after_ns)
            if change.before_step_ns is None or change.after_step_ns is None
            else (change.before_step_ns, change.after_step_ns)
        )
        table.add_row(_time(before), _time(after), _shape(change), wording.clean(change.name))
    return table


def _kernel_times(comparison: Comparison) -> str:
    is_a_step = any(change.before_step_ns is not None for change in comparison.kernels)
    for speed in comparison.speeds[:1] if is_a_step else ():
        return "time a step" if speed.subject == "all" else f"time a {wording.clean(speed.subject)} step"
    return "time in all"


def _shape(change: KernelChange) -> str:
    if change.grid_blocks is None or change.block_threads is None:
        return _UNKNOWN
    return f"{change.grid_blocks}x{change.block_threads}"


def _label(name: str) -> str:
    """The figure's name without the unit, which its values carry."""
    return _UNIT.sub("", name).replace("_", " ").replace(".", " ")


def _worded(name: str, value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    if name in _SHARES:
        return format_share(value)
    if _IS_TIME.search(name):
        return format_ns(value * 1e9)
    if name.endswith("_us"):
        return format_ns(value * 1e3)
    if name.endswith("_bytes"):
        return format_bytes(value)
    return format_count(round(value, 1))


def _time(nanoseconds: float) -> str:
    return format_ns(nanoseconds) if nanoseconds else _UNKNOWN
