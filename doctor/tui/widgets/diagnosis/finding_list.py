"""The findings in their order, with severity as bar and word, and gain."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import wording
from doctor.tui.looks import SEVERITY_BARS, SEVERITY_COLOURS
from doctor.units import format_bytes, format_speedup

_WORD = 8


class FindingList(OptionList):
    """One line a finding; those that another finding's cure takes along stand indented below it."""

    DEFAULT_CSS = """
    FindingList {
        height: auto; max-height: 8; border: none; padding: 0 1; background: $background;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    FindingList:focus { border: none; }
    FindingList > .option-list--option-highlighted, FindingList:focus > .option-list--option-highlighted {
        background: $panel; color: $foreground; text-style: bold;
    }
    """

    def show(self, diagnosis: Diagnosis) -> None:
        """List the findings of a diagnosis, the principal one highlighted."""
        self.set_options(_option(diagnosis, finding) for finding in _in_order(diagnosis))
        if self.option_count:
            self.highlighted = 0


def _in_order(diagnosis: Diagnosis) -> tuple[RankedFinding, ...]:
    ordered: list[RankedFinding] = []
    for finding in wording.own_findings(diagnosis):
        ordered += [finding, *wording.followers(diagnosis, finding)]
    return tuple(ordered)


def _option(diagnosis: Diagnosis, finding: RankedFinding) -> Option:
    place = diagnosis.findings.index(finding)
    if finding.same_cause_as is not None:
        line = Content.assemble(("    └ same cause: ", "$foreground-muted"), wording.clean(finding.title))
        return Option(line, id=str(place))
    number = wording.own_findings(diagnosis).index(finding) + 1
    colour = SEVERITY_COLOURS[finding.severity]
    line = Content.assemble(
        (f"{number:>2} ", "bold"),
        (f"{SEVERITY_BARS[finding.severity]} {finding.severity.label:<{_WORD}} ", colour),
        (f"{_gain(finding):>8}  ", "bold $success"),
        wording.clean(finding.title),
    )
    return Option(line, id=str(place))


def _gain(finding: RankedFinding) -> str:
    gain = finding.gain
    if gain is None:
        return ""
    if gain.speedup_expected is not None:
        return format_speedup(gain.speedup_expected)
    if gain.speedup_bound is not None:
        return f"<={format_speedup(gain.speedup_bound)}"
    return format_bytes(gain.bytes) if gain.bytes is not None else ""
