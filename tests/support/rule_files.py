"""Rules written by a user, as files and as objects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from doctor.diagnosis.catalogue import load_catalogue
from doctor.rule import About, Cleared, Rule, Stage, Verdict

RULE_FILE = '''"""{title}."""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Rule, Severity, Stage


class Count(NamedTuple):
    kernel_count: int


def judge(row):
    {judge}


RULE = Rule(
    about=About("{rule_id}", "{title}", Stage.OPPORTUNITY, ("{reads}",), ("kineto",)),
    thresholds={{}},
    sql="{sql}",
    row=Count,
    judge=judge,
    fixes=(),
    verify="record again.",
    doc=__doc__,
)
'''
FIRES = (
    'return Finding(f"{row.kernel_count} kernels", (Evidence("kernels", row.kernel_count, "kernels"),),'
    " severity=Severity.INFO)"
)
COUNTS_KERNELS = "SELECT count(*) FROM device_op WHERE kind = 'kernel'"


def write_rule(
    folder: Path, rule_id: str, *, judge: str = FIRES, sql: str = COUNTS_KERNELS, reads: str = "device_op"
) -> Path:
    """Write a rule file into a folder of its own and return that folder."""
    folder.mkdir(exist_ok=True)
    text = RULE_FILE.format(title="A rule of the house", rule_id=rule_id, judge=judge, sql=sql, reads=reads)
    (folder / f"{rule_id.replace('-', '_')}.py").write_text(text, encoding="utf-8")
    return folder


class Nothing(NamedTuple):
    """A row of one number."""

    one: int


def rule(rule_id: str, stage: Stage = Stage.SPECIFIC, *, group: str = "", group_rank: int = 0) -> Rule:
    """A rule that is one of the catalogue but for its place in the decision order."""
    about = About(rule_id, f"title of {rule_id}", stage, ("source",), ("kineto",), group, group_rank)
    return replace(
        load_catalogue()[0], about=about, thresholds={}, sql="SELECT 1", row=Nothing, judge=always_clear, also=()
    )


def always_clear(row: Any) -> Verdict:
    """A verdict whatever the row."""
    return Cleared(f"{row.one} row")
