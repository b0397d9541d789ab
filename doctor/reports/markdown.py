"""The diagnosis as Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import unchecked, wording
from doctor.reports.presentation import Presentation
from doctor.reports.runs import other_runs_line

_KERNELS_SHOWN = 5
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def render(diagnosis: Diagnosis, presentation: Presentation) -> str:
    """The document: verdict, figures, findings, what is not guilty, what was not checked, the recording."""
    lines = [
        f"## {escaped(wording.verdict(diagnosis))}",
        "",
        *(f"**Incomplete:** {escaped(line)}\n" for line in wording.incomplete_lines(diagnosis)),
        *_paragraph(_other_runs(diagnosis)),
        *_paragraph(" · ".join(map(escaped, wording.vitals_parts(diagnosis)))),
    ]
    for place, finding in enumerate(wording.own_findings(diagnosis), start=1):
        lines.extend(_finding(diagnosis, finding, place))
    lines.extend(_list("Looks guilty, is not", ((entry.rule, entry.because) for entry in diagnosis.ruled_out)))
    lines.extend(_list("Not checked", unchecked.not_run_summary(diagnosis)))
    lines.extend(_list("To check more, collect", unchecked.collect_rows(diagnosis)))
    lines.extend(_kernels(diagnosis))
    lines.extend(_recording(diagnosis))
    return "\n".join(lines).rstrip() + "\n"


def _other_runs(diagnosis: Diagnosis) -> str:
    line = other_runs_line(diagnosis)
    return f"**Other runs:** {escaped(line)}" if line else ""


def _finding(diagnosis: Diagnosis, finding: RankedFinding, place: int) -> Iterator[str]:
    yield f"### {place}. {escaped(finding.title)} ({finding.severity.label})"
    yield ""
    yield from _paragraph(escaped(wording.sentence(finding.summary)))
    win = wording.gain_sentence(finding.gain)
    if win:
        yield from _paragraph(f"**To win:** {escaped(win)}")
    yield from _fixes(finding)
    if finding.verify:
        yield from _paragraph(f"**Verify:** {escaped(wording.sentence(finding.verify))}")
    yield from _evidence(diagnosis, finding)
    same = ", ".join(escaped(follower.title) for follower in wording.followers(diagnosis, finding))
    if same:
        yield from _paragraph(f"**Same cause:** {same}")
    yield from _paragraph(f"More: `doctor explain {finding.rule}`")


def _fixes(finding: RankedFinding) -> Iterator[str]:
    if finding.fixes:
        rows = (
            (wording.framework(fix.target), _code(fix.setting), escaped(fix.why))
            for fix in wording.shown_fixes(finding)
        )
        yield from _table(
            ("Where", "Change", "Why"), ((escaped(target), setting, why) for target, setting, why in rows)
        )


def _evidence(diagnosis: Diagnosis, finding: RankedFinding) -> Iterator[str]:
    if finding.evidence:
        yield from _table(
            ("Evidence", "Value", "Where"),
            (
                (
                    escaped(entry.name),
                    escaped(wording.evidence_value(entry)),
                    escaped(wording.place(entry.where, diagnosis.window)),
                )
                for entry in finding.evidence
            ),
        )


def _kernels(diagnosis: Diagnosis) -> Iterator[str]:
    shown = diagnosis.display.kernels[:_KERNELS_SHOWN]
    if shown:
        yield from ("### Top kernels", "")
        cells = (wording.kernel_cells(row) for row in shown)
        yield from _table(wording.KERNEL_COLUMNS, (tuple(map(escaped, row)) for row in cells))


def _recording(diagnosis: Diagnosis) -> Iterator[str]:
    yield from ("### Recording", "")
    yield from (f"- {escaped(line)}" for line in wording.recording_lines(diagnosis))


def _list(title: str, entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    lines = [f"- **{escaped(head)}**: {escaped(body)}" for head, body in entries]
    if lines:
        yield from (f"### {title}", "", *lines, "")


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _paragraph(text: str) -> tuple[str, ...]:
    return (text, "") if text else ()


def escaped(text: str) -> str:
    """Plain text: what Markdown or HTML would read as markup is escaped."""
    return _SPECIAL.sub(r"\\\1", wording.clean(text))


def _code(text: str) -> str:
    """A setting as typed, in a fence longer than any run of back-ticks in it."""
    cleaned = wording.clean(text).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", cleaned)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {cleaned} {fence}" if longest else f"`{cleaned}`"
