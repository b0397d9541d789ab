"""The manual: the catalogue as a list, and the page of one rule."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from doctor.reports import wording
from doctor.reports.presentation import Presentation
from doctor.reports.text_console import as_text
from doctor.rule import Fix, Rule, Stage

_WIDEST = 110
_FRAMEWORK_WIDTH = 15
_STAGES = {
    Stage.RECORDING: "Can this recording be trusted?",
    Stage.HARDWARE: "The machine",
    Stage.MEMORY: "Memory",
    Stage.SPECIFIC: "Time lost to one thing",
    Stage.GENERAL: "Time lost in general",
    Stage.OPPORTUNITY: "Worth knowing",
}
_SECTION = re.compile(r"^(What happens|How it is detected|When it is not this):\s*", re.MULTILINE)


def catalogue_page(catalogue: Sequence[Rule], presentation: Presentation) -> str:
    """Every rule on a line, by stage of the decision order."""
    order = list(Stage)
    ordered = sorted(catalogue, key=lambda rule: (order.index(rule.about.stage), rule.about.id))
    parts: list[RenderableType] = []
    for stage, rules in groupby(ordered, key=lambda rule: rule.about.stage):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        for rule in rules:
            table.add_row(f"  {rule.about.id}", rule.about.title)
        parts.extend((Text(_STAGES[stage], style="cyan"), table, Text()))
    parts.append(Text(f"{len(catalogue)} rules; `doctor explain RULE` opens one."))
    return as_text(Group(*parts), min(presentation.width, _WIDEST), is_coloured=presentation.is_coloured)


def rule_page(rule: Rule, presentation: Presentation) -> str:
    """One rule: what happens, how it is measured, its look-alikes, thresholds, fixes, and how to verify them."""
    about = rule.about
    parts: list[RenderableType] = [
        Text.assemble((about.id, "bold cyan"), "  ", (about.title, "bold")),
        Text(),
        *_manual(rule.doc),
        *_thresholds(rule),
        Text("Fixes", style="bold"),
        _fixes(rule.fixes),
        Text(),
        Text("Verify", style="bold"),
        Padding(Text(wording.sentence(rule.verify)), (0, 0, 1, 2)),
        Text(_needs(rule), style="bright_black"),
    ]
    return as_text(Group(*parts), min(presentation.width, _WIDEST), is_coloured=presentation.is_coloured)


def _needs(rule: Rule) -> str:
    """What the rule can be seen in: each of its signs is enough."""
    return f"Needs {rule.needs[0]}." if len(rule.needs) == 1 else f"Needs one of {', '.join(rule.needs)}."


def sections(doc: str) -> tuple[tuple[str, str], ...]:
    """The docstring of a rule's file as `(heading, text)`; the first heading is empty and holds the summary."""
    pieces = _SECTION.split(doc.strip())
    heads = ["", *pieces[1::2]]
    return tuple((head, " ".join(body.split())) for head, body in zip(heads, pieces[0::2], strict=True))


def _manual(doc: str) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for head, body in sections(doc):
        if head:
            parts.append(Text(head, style="bold"))
        parts.append(Padding(Text(wording.sentence(body)), (0, 0, 1, 2 if head else 0)))
    return parts


def _thresholds(rule: Rule) -> list[RenderableType]:
    if not rule.thresholds:
        return []
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, threshold in rule.thresholds.items():
        words = name.replace("_", " ")
        table.add_row(f"  {words}", Text(f"{threshold.value:g} {threshold.unit}", style="bold"), threshold.source)
    return [Text("Thresholds", style="bold"), table, Text()]


def _fixes(fixes: Sequence[Fix]) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    table.add_column(width=_FRAMEWORK_WIDTH, no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for fix in fixes:
        line = Text.assemble((fix.setting, "bold"), f"\n{wording.sentence(fix.why)}")
        if fix.source:
            line.append(f"\n{fix.source}", style="bright_black")
        table.add_row(f"  {wording.framework(fix.target)}", line)
    return table
