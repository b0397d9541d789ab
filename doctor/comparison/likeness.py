"""Whether two runs did the same work on the same device: where they did not, no speed-up is told.

Cures change kernels too: they fuse, split and retype them. What a cure may do as well as another model is a doubt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from doctor.case.kernel_queries import kernels_by_name
from doctor.comparison.alignment import Pair
from doctor.comparison.kernels import KernelShape, KernelUse, spelled_alike
from doctor.units import format_count, format_counted

if TYPE_CHECKING:
    import duckdb

_MOST_APART = 1.25
"""Between the counts of two runs that do the same: a cure may merge some products of a layer, such as Q, K and V."""
_MOST_UNMARKED_APART = 3.0
"""Between the counts of steps that a range marks and of what comes back unmarked: a layer that waits looks like one."""
_LEAST_OF_EXPERTS = 0.02
_MOST_TOKENS_APART = 1.02
_TOKENS = {"prompt_tokens": "prompt tokens", "output_tokens": "output tokens"}
_PRODUCT, _EXPERTS = "gemm", "moe"
_NSYS = "nsys-report"
_IS_SUM = re.compile(r"split_?k.*reduce", re.IGNORECASE)

Kernels = Mapping[KernelShape, KernelUse]


@dataclass(frozen=True)
class Workload:
    """What ran, and on what.

    Attributes:
        devices: product names.
        families: of kernels, by name as `spelled_alike` gives it.
        steps_side_by_side: processes that step at the same time, such as the ranks of one job; at least 1.
        recorders: kinds of the evidence that holds the time-line, those of one tool as one.
        may_step_by_layers: nothing marks a step, and what comes back may be a layer of one.
        has_unmarked_steps: nothing marks a step, whatever comes back.
    """

    devices: frozenset[str] = frozenset()
    families: Mapping[str, str] = field(default_factory=dict)
    steps_side_by_side: int = 1
    recorders: frozenset[str] = frozenset()
    may_step_by_layers: bool = False
    has_unmarked_steps: bool = False


def workload_of(case: duckdb.DuckDBPyConnection) -> Workload:
    """What ran in a diagnosed case."""
    families = {spelled_alike(group.name): group.family for group in kernels_by_name(case)}
    devices = frozenset(str(name) for (name,) in case.execute(_DEVICES).fetchall())
    recorders = frozenset(_tool(kind) for (kind,) in case.execute(_RECORDERS).fetchall())
    chosen_by = {str(words) for (words,) in case.execute(_STEPS_TOLD_BY).fetchall()}
    may_be_layers = any("maybe layers" in words for words in chosen_by)
    is_unmarked = any(words.startswith("repeating work") for words in chosen_by)
    return Workload(devices, families, max(_num_processes(case), 1), recorders, may_be_layers, is_unmarked)


def _tool(kind: str) -> str:
    """A report and its exports are one tool's."""
    return _NSYS if kind.startswith("nsys-") else kind


def _num_processes(case: duckdb.DuckDBPyConnection) -> int:
    """Processes that have steps: ranks of one job step side by side."""
    [(count,)] = case.execute("SELECT count(*) FROM (SELECT DISTINCT source_id, pid FROM step)").fetchall()
    return int(count)


@dataclass(frozen=True)
class _Kernels:
    """The kernels of some steps of one side, or of its whole window."""

    uses: Kernels
    families: Mapping[str, str]
    steps: float

    def count(self, family: str) -> float:
        """Launches of a family in a step; sums of the pieces of one product are none."""
        names = {name for name, of in self.families.items() if of == family and not _IS_SUM.search(name)}
        return sum(use.count for shape, use in self.uses.items() if shape.name in names) / self.steps

    def share(self, family: str) -> float:
        """Time of a family, of all."""
        return self._share_of({name for name, of in self.families.items() if of == family})

    def _share_of(self, names: set[str]) -> float:
        total = sum(use.total_ns for use in self.uses.values())
        return sum(use.total_ns for shape, use in self.uses.items() if shape.name in names) / max(total, 1)


def other_devices(before: Workload, after: Workload) -> list[str]:
    """Other devices, where both are known."""
    if not before.devices or not after.devices or _plain(before.devices) & _plain(after.devices):
        return []
    return [f"another GPU ({_listed(before.devices)} in BEFORE, {_listed(after.devices)} in AFTER)"]


def other_tokens(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> list[str]:
    """Other numbers of tokens in two benchmarks."""
    pairs = ((word, before.get(name), after.get(name)) for name, word in _TOKENS.items())
    return [
        f"another amount of work ({format_count(one)} {word} in BEFORE, {format_count(other)} in AFTER)"
        for word, one, other in pairs
        if one is not None and other is not None and _apart(one, other) > _MOST_TOKENS_APART
    ]


def other_processes(before: Workload, after: Workload) -> list[str]:
    """Another number of processes: another job, or the same one spread in another way."""
    if before.steps_side_by_side == after.steps_side_by_side:
        return []
    processes = format_counted(before.steps_side_by_side, "process", "processes")
    return [f"{processes} in BEFORE, {after.steps_side_by_side} in AFTER"]


def recorders_of(before: Workload, after: Workload) -> tuple[str, str] | None:
    """Kinds of the two recordings where one tool made the one and another tool the other."""
    if len(before.recorders) != 1 or len(after.recorders) != 1 or before.recorders == after.recorders:
        return None
    [one], [other] = before.recorders, after.recorders
    return one, other


@dataclass(frozen=True)
class WorkPair:
    """The kernels of like steps of both sides, or of whole windows where there are none."""

    before: _Kernels
    after: _Kernels
    per: str
    layers_in: tuple[str, ...] = ()
    unmarked_in: tuple[str, ...] = ()

    @classmethod
    def of_steps(cls, pair: Pair, before: Workload, after: Workload) -> WorkPair:
        """Of steps of one kind."""
        sides = [
            _Kernels(steps.kernels, workload.families, len(steps.seconds) / workload.steps_side_by_side)
            for steps, workload in ((pair.before, before), (pair.after, after))
        ]
        both = (("BEFORE", before), ("AFTER", after))
        layers_in = tuple(name for name, side in both if side.may_step_by_layers)
        return cls(
            sides[0], sides[1], "a step", layers_in, tuple(name for name, side in both if side.has_unmarked_steps)
        )

    @classmethod
    def of_windows(cls, before: tuple[Kernels, Workload], after: tuple[Kernels, Workload]) -> WorkPair:
        """Of whole windows."""
        sides = [_Kernels(kernels, workload.families, 1.0) for kernels, workload in (before, after)]
        return cls(sides[0], sides[1], "in all")

    def other_model(self) -> list[str]:
        """Experts on one side alone."""
        sides = (("BEFORE", self.before, self.after), ("AFTER", self.after, self.before))
        return [
            f"another model (experts in {side} alone)"
            for side, here, there in sides
            if there.uses and here.share(_EXPERTS) >= _LEAST_OF_EXPERTS and not there.count(_EXPERTS)
        ]

    def other_steps(self) -> list[str]:
        """Steps of one side alone that may be layers, and hold another number of matrix products, or of kernels.

        What waits or copies in each is taken for a step; so is a layer that waits, where the other side has marks.
        """
        counts = [side.count(_PRODUCT) for side in (self.before, self.after)]
        if not any(counts):
            counts = [sum(use.count for use in side.uses.values()) / side.steps for side in (self.before, self.after)]
        for sides, most in ((self.layers_in, _MOST_APART), (self.unmarked_in, _MOST_UNMARKED_APART)):
            if len(sides) == 1 and _apart(*counts) > most:
                return [f"steps of another size (what comes back in {sides[0]} may be the layers of one)"]
        return []

    def other_products(self) -> list[str]:
        """Another number of matrix products."""
        counts = self.before.count(_PRODUCT), self.after.count(_PRODUCT)
        if not self.before.uses or not self.after.uses or _apart(*counts) <= _MOST_APART:
            return []
        one, other = (format_count(round(count)) for count in counts)
        return [f"{one} matrix products {self.per} in BEFORE, {other} in AFTER"]


def _apart(one: float, other: float) -> float:
    """The larger over the smaller; 1 where both are nothing."""
    if not one or not other:
        return 1.0 if one == other else float("inf")
    return max(one / other, other / one)


def _plain(names: frozenset[str]) -> frozenset[str]:
    """Without what recorders spell in their own way."""
    return frozenset(name.lower().removeprefix("nvidia ").removesuffix("...").strip() for name in names)


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


_RECORDERS = "SELECT DISTINCT kind FROM source JOIN timeline_source USING (source_id)"

_STEPS_TOLD_BY = "SELECT DISTINCT chosen_by FROM step"

_DEVICES = """
SELECT DISTINCT device.name FROM device JOIN device_op USING (source_id, device_id) WHERE device.name IS NOT NULL
ORDER BY ALL
"""
