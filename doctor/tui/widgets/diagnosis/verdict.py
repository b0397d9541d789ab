"""The head of the diagnosis: the fault, the win, the setting to change, the check. Legible without any key press."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text
from textual.widgets import Static

from doctor.diagnosis.outcome import Diagnosis, RankedFinding
from doctor.reports import wording
from doctor.reports.runs import other_runs_line
from doctor.tui.looks import SEVERITY_COLOURS, colour

_LABEL = 8


class Verdict(Static):
    """A few lines about the principal finding, or that there is none."""

    DEFAULT_CSS = """
    Verdict { height: auto; max-height: 10; padding: 0 1; background: $surface; }
    """

    def show(self, diagnosis: Diagnosis) -> None:
        """Show what the diagnosis says first."""
        table = Table.grid(padding=(0, 1, 0, 0), expand=True)
        table.add_column(min_width=_LABEL, no_wrap=True, style=colour(self.app, "foreground-muted"))
        table.add_column(ratio=1, overflow="fold")
        first = wording.principal(diagnosis)
        if first is not None:
            self._add_guilty(table, first)
        else:
            name = "success" if diagnosis.window is not None else "warning"
            table.add_row("", Text(wording.verdict(diagnosis), style=f"bold {colour(self.app, name)}"))
        for line in (*wording.incomplete_lines(diagnosis), *filter(None, [other_runs_line(diagnosis)])):
            table.add_row("Caution", Text(line, style=colour(self.app, "warning")))
        measured = " · ".join(wording.vitals_parts(diagnosis))
        if measured:
            table.add_row("Measured", measured)
        self.update(table)

    def _add_guilty(self, table: Table, finding: RankedFinding) -> None:
        ground = colour(self.app, SEVERITY_COLOURS[finding.severity].removeprefix("$"))
        badge = Text(f" {finding.severity.label.upper()} ", style=f"bold {colour(self.app, 'background')} on {ground}")
        table.add_row(badge, Text(wording.clean(finding.title), style="bold"))
        win = wording.gain_sentence(finding.gain)
        if win:
            table.add_row("To win", Text(win, style=f"bold {colour(self.app, 'success')}"))
        for fix in finding.fixes[:1]:
            setting = Text.assemble(f"{wording.framework(fix.target)}: ", (wording.clean(fix.setting), "bold"))
            table.add_row("Change", setting)
        if check := wording.first_check(finding):
            table.add_row("Verify", check)
