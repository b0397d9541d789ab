"""What was not checked and how to collect what would let it be, in the words that every output shares."""

from __future__ import annotations

from dataclasses import replace

from doctor.diagnosis.outcome import Diagnosis, NotRun
from doctor.reports.collecting import Recipe, recipe_for
from doctor.reports.wording import clean, kinds_read
from doctor.units import format_counted

_MOST_NAMED = 8
_NO_SUCH_WORK = "nothing of the kind in this evidence"


def not_run_groups(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    """Rules that were not run, gathered by what would let them: `(what is missing, rules)`."""
    kinds = kinds_read(diagnosis)
    groups: dict[str, list[str]] = {}
    for entry in diagnosis.not_run:
        groups.setdefault(_missing(entry, kinds), []).append(clean(entry.rule))
    return tuple((missing, ", ".join(sorted(rules))) for missing, rules in sorted(groups.items()))


def not_run_summary(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    """`not_run_groups` for a screen: rules that want another kind of evidence are counted where they are many."""
    kinds = kinds_read(diagnosis)
    strangers = [entry for entry in diagnosis.not_run if not kinds & set(entry.needs)]
    near = [entry for entry in diagnosis.not_run if entry not in strangers]
    lines: list[tuple[str, str]] = []
    for entries, words in ((near, _NO_SUCH_WORK), (strangers, "other evidence is needed for")):
        if len(entries) > _MOST_NAMED:
            lines.append((words, f"{len(entries)} rules; --format json names them"))
        else:
            lines += not_run_groups(replace(diagnosis, not_run=tuple(entries)))
    return tuple(lines)


def collect_rows(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    """How to collect what rules lacked, what lets most of them run first: `(evidence, command and number of rules)`."""
    kinds = kinds_read(diagnosis)
    rules: dict[Recipe, set[str]] = {}
    for entry in diagnosis.not_run:
        if not kinds & set(entry.needs):
            for kind in entry.needs:
                rules.setdefault(recipe_for(kind), set()).add(entry.rule)
    ordered = sorted((one for one in rules if one.command), key=lambda one: (-len(rules[one]), one.kind))
    return tuple((one.kind, f"{one.command}  ({format_counted(len(rules[one]), 'rule')})") for one in ordered)


def _missing(entry: NotRun, kinds: set[str]) -> str:
    if kinds & set(entry.needs):
        return _NO_SUCH_WORK
    return f"needs {clean(', '.join(entry.needs)) or 'more evidence'}"
