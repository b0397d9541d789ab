"""What a run's evidence can show: a finding that the other run could not have shown is neither gone nor new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from doctor.case.diagnosis_queries import rows_in
from doctor.case.step_queries import hides_kernels
from doctor.diagnosis.runner import signs_that_show

if TYPE_CHECKING:
    import duckdb

    from doctor.diagnosis.outcome import Diagnosis
    from doctor.rule import Rule, Sign

_HIDDEN_TABLE = "kernel"
_WORDS = {
    "thread_call": "calls of the host",
    "usual_step": "steps",
    "step_work": "steps",
    "step": "steps",
    "kernel": "kernels",
    "device_op": "device work",
    "device_busy": "device work",
    "meeting_member": "collectives of several ranks",
    "expert_rank_time": "collectives of several ranks",
}
"""Tables as people call what is in them."""
_INCIDENTS = frozenset(
    {
        "oom_event",
        "memory_refusal",
        "starved_start",
        "allocation_retry",
        "kernel_log_event",
        "engine_event",
        "missing_rank",
        "level_spike",
        "draft_pass",
    }
)
"""Tables of what went wrong: where evidence of their kind holds no rows of them, nothing did."""


@dataclass(frozen=True)
class Blindness:
    """Why something could not be seen, in a few words; `needs` are the kinds of evidence that would show it."""

    because: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sight:
    """What is told and what could be.

    Attributes:
        kinds: of the evidence that was read.
        tables: that hold rows, of those that signs of rules read.
        shown_by: by rule that finds something, the signs that show it.
        is_complete: every file was read whole.
        hides_kernels: CUDA graphs are recorded as one row each.
    """

    kinds: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    shown_by: Mapping[str, tuple[Sign, ...]] = field(default_factory=dict)
    is_complete: bool = True
    hides_kernels: bool = False

    def blindness(self, signs: tuple[Sign, ...]) -> Blindness | None:
        """Why none of these signs could be seen here; None where one could."""
        visible = [sign for sign in signs if self._is_visible(sign)]
        if signs and not visible:
            return self._missing(signs[0])
        if self.hides_kernels and signs and all(_HIDDEN_TABLE in sign.reads for sign in visible):
            return Blindness("its kernels are hidden inside CUDA graphs")
        return None if self.is_complete else Blindness("part of it could not be read")

    def _is_visible(self, sign: Sign) -> bool:
        missing = set(sign.reads) - self.tables
        return not missing or (missing <= _INCIDENTS and bool(self.kinds & set(sign.needs)))

    def _missing(self, sign: Sign) -> Blindness:
        if not self.kinds & set(sign.needs):
            return Blindness(f"it holds no {' or '.join(sign.needs)}", sign.needs)
        tables = (table for table in sign.reads if table not in self.tables)
        missing = dict.fromkeys(_WORDS.get(table, table.replace("_", " ")) for table in tables)
        return Blindness(f"it holds no {' and no '.join(missing)}")


def sight_of(case: duckdb.DuckDBPyConnection, diagnosis: Diagnosis, rules: tuple[Rule, ...]) -> Sight:
    """What a diagnosed case shows, and what these rules could have seen in it."""
    tables = {table for rule in rules for sign in rule.signs for table in sign.reads}
    found = {finding.rule for finding in diagnosis.findings}
    return Sight(
        frozenset(file.kind for file in diagnosis.evidence if file.is_read and file.run == 1),
        frozenset(table for table in tables if rows_in(case, table)),
        {rule.about.id: signs_that_show(case, rule) for rule in rules if rule.about.id in found},
        diagnosis.is_complete,
        hides_kernels(case),
    )
