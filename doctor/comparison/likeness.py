"""Whether two runs did the same work on the same device: where they did not, no speed-up is told."""

from __future__ import annotations

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
_LEAST_IN_COMMON = 0.1
"""Of the time of kernels, in kernels of a name that the other run has too: runs of one program share most."""
_LEAST_OF_EXPERTS = 0.02
_MOST_TOKENS_APART = 1.02
_TOKENS = {"prompt_tokens": "prompt tokens", "output_tokens": "output tokens"}
_PRODUCT, _EXPERTS = "gemm", "moe"

Kernels = Mapping[KernelShape, KernelUse]


@dataclass(frozen=True)
class Workload:
    """What ran, and on what.

    Attributes:
        devices: product names.
        families: of kernels, by name as `spelled_alike` gives it.
        steps_side_by_side: processes that step at the same time, such as the ranks of one job; at least 1.
    """

    devices: frozenset[str] = frozenset()
    families: Mapping[str, str] = field(default_factory=dict)
    steps_side_by_side: int = 1


def workload_of(case: duckdb.DuckDBPyConnection) -> Workload:
    """What ran in a diagnosed case."""
    families = {spelled_alike(group.name): group.family for group in kernels_by_name(case)}
    devices = frozenset(str(name) for (name,) in case.execute(_DEVICES).fetchall())
    return Workload(devices, families, max(_num_processes(case), 1))


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
        """Launches of a family in a step."""
        return (
            sum(use.count for shape, use in self.uses.items() if self.families.get(shape.name) == family) / self.steps
        )

    def share(self, family: str) -> float:
        """Time of a family, of all."""
        return self._share_of({name for name, of in self.families.items() if of == family})

    def in_common(self, other: _Kernels) -> float:
        """Time of kernels that the other has too, of all."""
        return self._share_of({shape.name for shape in other.uses})

    def _share_of(self, names: set[str]) -> float:
        total = sum(use.total_ns for use in self.uses.values())
        return sum(use.total_ns for shape, use in self.uses.items() if shape.name in names) / max(total, 1)


def machine_differences(before: Workload, after: Workload) -> list[str]:
    """Other devices, or another number of processes."""
    found = []
    if before.devices and after.devices and not _plain(before.devices) & _plain(after.devices):
        found.append(f"another GPU ({_listed(before.devices)} in BEFORE, {_listed(after.devices)} in AFTER)")
    if before.steps_side_by_side != after.steps_side_by_side:
        processes = format_counted(before.steps_side_by_side, "process", "processes")
        found.append(f"another number of processes ({processes} in BEFORE, {after.steps_side_by_side} in AFTER)")
    return found


def token_differences(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> list[str]:
    """Other numbers of tokens in two benchmarks."""
    pairs = ((word, before.get(name), after.get(name)) for name, word in _TOKENS.items())
    return [
        f"another amount of work ({format_count(one)} {word} in BEFORE, {format_count(other)} in AFTER)"
        for word, one, other in pairs
        if one is not None and other is not None and _apart(one, other) > _MOST_TOKENS_APART
    ]


def step_differences(pair: Pair, before: Workload, after: Workload) -> list[str]:
    """Other kernels in steps of one kind."""
    sides = [
        _Kernels(steps.kernels, workload.families, len(steps.seconds) / workload.steps_side_by_side)
        for steps, workload in ((pair.before, before), (pair.after, after))
    ]
    return _kernel_differences(sides[0], sides[1], "a step")


def window_differences(before: tuple[Kernels, Workload], after: tuple[Kernels, Workload]) -> list[str]:
    """Other kernels in whole windows."""
    sides = [_Kernels(kernels, workload.families, 1.0) for kernels, workload in (before, after)]
    return _kernel_differences(sides[0], sides[1], "in all")


def _kernel_differences(before: _Kernels, after: _Kernels, per: str) -> list[str]:
    if not before.uses or not after.uses:
        return []
    found = []
    for side, here, there in (("BEFORE", before, after), ("AFTER", after, before)):
        if here.share(_EXPERTS) >= _LEAST_OF_EXPERTS and not there.count(_EXPERTS):
            found.append(f"experts in {side} alone")
    counts = before.count(_PRODUCT), after.count(_PRODUCT)
    if _apart(*counts) > _MOST_APART:
        one, other = (format_count(round(count)) for count in counts)
        told = f"{one} matrix products {per} in BEFORE, {other} in AFTER"
        is_other_program = max(before.in_common(after), after.in_common(before)) < _LEAST_IN_COMMON
        found.append(f"{'another model' if is_other_program else 'other work'} ({told})")
    return found


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


_DEVICES = """
SELECT DISTINCT device.name FROM device JOIN device_op USING (source_id, device_id) WHERE device.name IS NOT NULL
ORDER BY ALL
"""
