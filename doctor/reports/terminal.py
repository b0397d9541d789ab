"""The diagnosis for a person at a terminal: the verdict and the setting to change stand on the first screen.

Order: verdict, first finding in full, the other findings, what looks guilty and is not, what was not checked, the
recording itself. Everything is placed in two columns that fit 80 cells and grow with the screen. Without colour the
order of the words alone carries the meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import sparkline, unchecked, wording
from doctor.reports.presentation import Presentation
from doctor.reports.runs import other_runs_line_as_typed
from doctor.reports.text_console import as_text
from doctor.rule import Fix, Severity
from doctor.units import format_speedup

_WIDEST = 132
_INDENT = 2
_BODY_INDENT = 3
_LABEL_WIDTH = 14
_FRAMEWORK_WIDTH = 12
_RECIPES_SHOWN = 3
_KERNELS_SHOWN = 5
_STYLES = {
    Severity.CRITICAL: "bold red",
    Severity.HIGH: "bold magenta",
    Severity.MEDIUM: "bold yellow",
    Severity.LOW: "bold cyan",
    Severity.INFO: "bold",
}
_ROW_STYLES = {"compute": "cyan", "communication": "magenta", "copy": "yellow"}
_FAINT = "bright_black"


def render(diagnosis: Diagnosis, presentation: Presentation) -> str:
    """The report as text, with ANSI colours where the receiver understands them."""
    width = min(presentation.width, _WIDEST)
    page = layout(diagnosis, width, is_unicode=presentation.is_unicode)
    text = as_text(page, width, is_coloured=presentation.is_coloured)
    return text if presentation.is_unicode else text.replace("…", "~").encode("ascii", "replace").decode("ascii")


def layout(diagnosis: Diagnosis, width: int, *, is_unicode: bool = True) -> RenderableType:
    """The report as a rich renderable of `width` columns."""
    findings = wording.own_findings(diagnosis)
    body = [_finding(diagnosis, finding, place) for place, finding in enumerate(findings, start=1)]
    tail = (_ruled_out(diagnosis), _not_run(diagnosis), _collect(diagnosis), _kernels(diagnosis), _recording(diagnosis))
    parts = (
        _verdict(diagnosis),
        _incomplete(diagnosis),
        _other_runs(diagnosis),
        _vitals(diagnosis, width, is_unicode=is_unicode),
        *body,
        *tail,
        _in_short(diagnosis),
    )
    return Group(*(part for part in parts if part is not None))


def _verdict(diagnosis: Diagnosis) -> RenderableType:
    first = wording.principal(diagnosis)
    if first is None:
        style = "bold green" if diagnosis.window is not None else "bold yellow"
        return _indented(Text(wording.verdict(diagnosis), style=style))
    badge = Text(f" {first.severity.label.upper()} ", style=f"{_STYLES[first.severity]} reverse")
    lines: list[RenderableType] = [_beside(badge, Text(wording.clean(first.title), style="bold"))]
    if win := wording.gain_sentence(first.gain):
        lines.append(Text(f"To win: {win}", style="bold green"))
    if change := wording.change_sentence(first):
        lines.append(Text(f"Change, {change}", style="bold"))
    if check := wording.first_check(first):
        lines.append(Text(f"Verify: {check}"))
    return _indented(Group(*lines))


def _in_short(diagnosis: Diagnosis) -> RenderableType | None:
    """The verdict once more at the end, which is what a terminal still shows of a long report."""
    first = wording.principal(diagnosis)
    if first is None:
        return None
    lines = [Text(f"{wording.verdict(diagnosis)}.")]
    if change := wording.change_sentence(first):
        lines.append(Text(f"Change, {change}", style="bold"))
    if check := wording.first_check(first):
        lines.append(Text(f"Verify: {check}"))
    return _titled("In short", lines)


def _incomplete(diagnosis: Diagnosis) -> RenderableType | None:
    """What was lost stands beside the verdict: a missing kernel looks like an idle device."""
    lines = Text("\n".join(wording.incomplete_lines(diagnosis)))
    return _indented(_beside(Text(" INCOMPLETE ", style="bold yellow reverse"), lines)) if lines else None


def _other_runs(diagnosis: Diagnosis) -> RenderableType | None:
    """What was left out as another run stands beside the verdict too: it may be what was asked about."""
    line = other_runs_line_as_typed(diagnosis)
    return _indented(_beside(Text(" OTHER RUNS ", style="bold yellow reverse"), Text(line))) if line else None


def _vitals(diagnosis: Diagnosis, width: int, *, is_unicode: bool) -> RenderableType | None:
    rows = sparkline.rows(diagnosis.display.timeline, width - _LABEL_WIDTH - 2 * _INDENT - 1, is_unicode=is_unicode)
    table = _two_columns()
    for row in rows:
        cells = Text(row.cells, style=_ROW_STYLES[row.label], no_wrap=True, overflow="crop")
        table.add_row(Text(row.label, style=_FAINT), cells)
    words = (" · " if is_unicode else "; ").join(wording.vitals_parts(diagnosis))
    if not rows and not words:
        return None
    return _indented(Group(*([Text(words)] if words else []), *([table] if rows else [])), above=1)


def _finding(diagnosis: Diagnosis, finding: RankedFinding, place: int) -> RenderableType:
    table = _two_columns()
    _add(table, "To win", [_win(finding)] if finding.gain is not None else [])
    fixes = wording.shown_fixes(finding) if place == 1 else wording.named_fixes(finding, diagnosis.frameworks)
    _add(table, "Change", [_fixes(fixes, has_reasons=place == 1)] if fixes else [])
    _add(table, "Verify", [Text(wording.sentence(finding.verify))] if finding.verify else [])
    _add(table, "Evidence", [_evidence(diagnosis, finding)] if finding.evidence else [])
    _add(table, "Same cause", [_follower(follower) for follower in wording.followers(diagnosis, finding)])
    _add(table, "Read more", [Text(f"doctor explain {finding.rule}", style=_FAINT)])
    summary = Padding(Text(wording.sentence(finding.summary)), (0, 0, 0, _BODY_INDENT))
    return _indented(Group(_heading(finding, place), summary, table), above=1)


def _heading(finding: RankedFinding, place: int) -> RenderableType:
    label = Text.assemble((f"{place:<{_BODY_INDENT}}", "bold"), (finding.severity.label, _STYLES[finding.severity]))
    return _beside(label, Text(wording.clean(finding.title), style="bold"))


def _win(finding: RankedFinding) -> Text:
    line = Text(wording.gain_sentence(finding.gain), style="green")
    if finding.after_first_speedup is not None:
        line.append(f"; {format_speedup(finding.after_first_speedup)} more once the first is cured", style=_FAINT)
    return line


def _fixes(fixes: Sequence[Fix], *, has_reasons: bool) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    table.add_column(width=_FRAMEWORK_WIDTH, no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    previous, reason = "", ""
    for fix in fixes:
        line = Text(wording.clean(fix.setting), style="bold")
        if has_reasons and fix.why and fix.why != reason:
            line.append(f"\n{wording.clean(fix.why)}", style=f"not bold {_FAINT}")
        table.add_row("" if fix.target == previous else Text(wording.framework(fix.target)), line)
        previous, reason = fix.target, fix.why
    return table


def _evidence(diagnosis: Diagnosis, finding: RankedFinding) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for evidence in finding.evidence:
        value = Text(wording.evidence_value(evidence), style="bold")
        place = wording.place(evidence.where, diagnosis.window)
        if place:
            value.append(f"  {place}", style=f"not bold {_FAINT}")
        table.add_row(Text(wording.clean(evidence.name)), value)
    return table


def _follower(finding: RankedFinding) -> Text:
    return Text.assemble((wording.clean(finding.title), ""), (f"  {finding.rule}", _FAINT))


def _ruled_out(diagnosis: Diagnosis) -> RenderableType | None:
    return _section(
        "Looks guilty, is not",
        ((entry.rule, wording.clean(entry.because)) for entry in diagnosis.ruled_out),
    )


def _not_run(diagnosis: Diagnosis) -> RenderableType | None:
    return _section(
        "Not checked",
        unchecked.not_run_summary(diagnosis),
    )


def _collect(diagnosis: Diagnosis) -> RenderableType | None:
    return _section("To check more, collect", unchecked.collect_rows(diagnosis)[:_RECIPES_SHOWN])


def _kernels(diagnosis: Diagnosis) -> RenderableType | None:
    shown = diagnosis.display.kernels[:_KERNELS_SHOWN]
    if not shown:
        return None
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style=_FAINT, pad_edge=False, expand=True)
    *numbers, _, last = wording.KERNEL_COLUMNS
    for heading in numbers:
        table.add_column(heading, justify="right", min_width=6)
    table.add_column(last, no_wrap=True, overflow="ellipsis", ratio=1)
    for row in shown:
        *figures, family, name = wording.kernel_cells(row)
        table.add_row(*figures, Text.assemble((f"{family}  ", _FAINT), name))
    return _titled("Top kernels", [table])


def _recording(diagnosis: Diagnosis) -> RenderableType:
    return _titled("Recording", [Text(line) for line in wording.recording_lines(diagnosis)])


def _section(title: str, entries: Iterable[tuple[str, str]]) -> RenderableType | None:
    lines = [Text.assemble((f"{head}  ", "bold"), body) for head, body in entries]
    return _titled(title, lines) if lines else None


def _titled(title: str, parts: Iterable[RenderableType]) -> RenderableType:
    indented = (Padding(part, (0, 0, 0, _BODY_INDENT)) for part in parts)
    return _indented(Group(Text(title, style="bold"), *indented), above=1)


def _beside(label: Text, text: Text) -> Table:
    """A label, and text that wraps beside it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(label, text)
    return table


def _two_columns() -> Table:
    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    table.add_column(width=_LABEL_WIDTH, no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    return table


def _add(table: Table, label: str, lines: Sequence[RenderableType]) -> None:
    for position, line in enumerate(lines):
        table.add_row(Text(f"{' ' * _BODY_INDENT}{label}" if position == 0 else "", style=_FAINT), line)


def _indented(part: RenderableType, *, above: int = 0) -> RenderableType:
    return Padding(part, (above, 0, 0, _INDENT))
