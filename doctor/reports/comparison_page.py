"""A comparison for people: figures side by side, findings gone and new, kernels slower and faster."""

from __future__ import annotations

import re

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from doctor.comparison.outcome import CONFIDENCE, Comparison, KernelChange, LeftOut, Speed
from doctor.reports import wording
from doctor.reports.presentation import Presentation
from doctor.reports.text_console import as_text
from doctor.units import format_bytes, format_count, format_ns, format_share, format_speedup

_WIDEST = 120
_TIME_WIDTH = 7
_UNKNOWN = "-"
_IS_TIME = re.compile(r"^seconds$|_seconds$|(?<!_per)_s(\.|$)")
_UNIT = re.compile(r"_seconds$|_us$|_bytes$|(?<!_per)_s(?=\.|$)")
_RECORDER_RULE = "profiler-distorted"
_AS_RECORDED = (
    "Times are as recorded, and the recorder slows launches: where these went away, the speed-up without it is less."
)
_SHOW_NODES = "--cuda-graph-trace=node records them"
_SUBJECTS = {"benchmark": "The benchmark", "all": "A step", "usual": "A usual step"}
_SHARES = {"gpu_busy", "exposed_communication", "exposed_copy"}


def comparison_page(comparison: Comparison, presentation: Presentation) -> str:
    """The comparison as text that ends in a line break."""
    verdict = _verdict(comparison)
    parts: list[RenderableType] = [] if verdict is None else [verdict, Text()]
    if comparison.speeds:
        parts += [_speeds(comparison.speeds), Text()]
    parts += [*(Text(line) for line in _left_out_lines(comparison)), _figures(comparison), Text()]
    for title, rules in (("Gone", comparison.gone), ("New", comparison.new), ("Still there", comparison.stayed)):
        if rules:
            parts.append(Text(f"{title}: {', '.join(rules)}"))
    if _RECORDER_RULE in (*comparison.gone, *comparison.new, *comparison.stayed):
        parts.append(Text(_AS_RECORDED))
    if comparison.kernels:
        parts += [Text(), _kernels(comparison)]
    for side in comparison.hidden_in:
        parts.append(Text(f"Kernels are not compared: {side.upper()} hides them inside CUDA graphs ({_SHOW_NODES})."))
    return as_text(Group(*parts), min(presentation.width, _WIDEST), is_coloured=presentation.is_coloured)


def _verdict(comparison: Comparison) -> Text | None:
    """The change of the kind of step with most time, else of the window, in one sentence; None where unknown."""
    for speed in comparison.speeds[:1]:
        subject = _SUBJECTS.get(speed.subject, f"A {wording.clean(speed.subject)} step")
        return _sentence(subject, speed.before_seconds, speed.after_seconds)
    figures = {change.name: change for change in comparison.figures}
    for name, subject in (("step_seconds", "A step"), ("window_seconds", "The recording")):
        change = figures.get(name)
        if change is not None and change.before and change.after:
            return _sentence(subject, change.before, change.after)
    return None


def _sentence(subject: str, before_seconds: float, after_seconds: float) -> Text:
    factor = before_seconds / after_seconds
    pace = f"{format_speedup(max(factor, 1 / factor))} {'faster' if factor >= 1 else 'slower'}"
    times = f"{subject} took {format_ns(before_seconds * 1e9)} and now takes {format_ns(after_seconds * 1e9)}: "
    return Text.assemble(times, (pace, "bold green" if factor >= 1 else "bold red"))


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
    table = _table("steps", "before", "after", "mean before", "mean after", f"speed-up ({CONFIDENCE:.0%} interval)")
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
