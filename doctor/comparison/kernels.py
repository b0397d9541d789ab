"""Kernels of one run by name and shape, and how they differ from another's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from doctor.comparison.outcome import KernelChange

MOST_KERNELS = 12
LEAST_KERNEL_CHANGE = 0.05
"""Kernels whose time changed by less than this share are left out: recordings of one program differ by as much."""


@dataclass(frozen=True, order=True)
class KernelShape:
    """What makes two kernels the same: name, blocks of the grid, threads of a block; None where the trace is silent."""

    name: str
    grid_blocks: int | None
    block_threads: int | None


_CAST = re.compile(r"\((?:unsigned )?(?:char|short|int|long|long long)\)(?=-?\d)")
_FLAG = re.compile(r"\(bool\)([01])")
_NAMELESS = re.compile(r"<unnamed>|\(anonymous namespace\)")
_INSTANCE = re.compile(r"\s*\(instance (\d+)\)\]")
_SUFFIX = re.compile(r"\b(\d+)(?:ull|ul|u|ll|l)\b")
_NOISE = re.compile(r"\bconst\b|\bvoid (?=[A-Za-z_{])")
_PARENTHESIS = re.compile(r"[()]")
_SPACE = re.compile(r"\s+(?=\W)|(?<=\W)\s+")


def spelled_alike(name: str) -> str:
    """The name without what recorders spell in their own way.

    Nsight Systems writes `(int)4`, `[lambda(int) (instance 1)]` and parameters as `T3`; the PyTorch profiler `4`,
    `{lambda(int)#1}` and every parameter in full. Names and template arguments tell kernels apart; parameters, return
    types and `const` follow from them and are left out.
    """
    plain = _FLAG.sub(lambda found: "true" if found[1] == "1" else "false", _CAST.sub("", name))
    plain = _INSTANCE.sub(r"#\1}", plain.replace("[lambda", "{lambda"))
    plain = _without_parameters(_NAMELESS.sub("{anonymous}", plain))
    return _SPACE.sub("", _NOISE.sub("", _SUFFIX.sub(r"\1", plain))).strip()


def _without_parameters(name: str) -> str:
    """The name without anything in parentheses."""
    kept, depth, since = [], 0, 0
    for found in _PARENTHESIS.finditer(name):
        if depth == 0:
            kept.append(name[since : found.start()])
        depth = max(depth + (1 if found[0] == "(" else -1), 0)
        since = found.end()
    return "".join((*kept, name[since:] if depth == 0 else ""))


@dataclass(frozen=True)
class KernelUse:
    """How often a kernel ran in the window and how long in all, in ns."""

    count: int
    total_ns: int


NO_USE = KernelUse(0, 0)


def added(uses: Iterable[tuple[KernelShape, KernelUse]]) -> dict[KernelShape, KernelUse]:
    """Uses of one kernel as one."""
    kernels: dict[KernelShape, KernelUse] = {}
    for shape, use in uses:
        before = kernels.get(shape, NO_USE)
        kernels[shape] = KernelUse(before.count + use.count, before.total_ns + use.total_ns)
    return kernels


def kernels_of(case: duckdb.DuckDBPyConnection) -> dict[KernelShape, KernelUse]:
    """Every kernel that began in the window of a diagnosed case."""
    return added(
        (KernelShape(spelled_alike(name), grid_blocks, block_threads), KernelUse(count, total_ns))
        for name, grid_blocks, block_threads, count, total_ns in case.execute(_KERNELS).fetchall()
    )


def kernel_changes(
    before: Mapping[KernelShape, KernelUse],
    after: Mapping[KernelShape, KernelUse],
    steps: tuple[float | None, float | None],
) -> tuple[KernelChange, ...]:
    """The largest changes, a step where both runs tell their steps."""
    shapes = dict.fromkeys((*before, *after))
    changes = [_change(shape, before.get(shape, NO_USE), after.get(shape, NO_USE), steps) for shape in shapes]
    told = [change for change in changes if _is_told(change)]
    told.sort(key=lambda change: (-abs(change.difference_ns), change.name, change.grid_blocks or 0))
    return tuple(told[:MOST_KERNELS])


def _change(
    shape: KernelShape, before: KernelUse, after: KernelUse, steps: tuple[float | None, float | None]
) -> KernelChange:
    is_known = bool(steps[0] and steps[1])
    return KernelChange(
        shape.name,
        shape.grid_blocks,
        shape.block_threads,
        before.total_ns,
        after.total_ns,
        before.count,
        after.count,
        before.total_ns / steps[0] if is_known and steps[0] else None,
        after.total_ns / steps[1] if is_known and steps[1] else None,
    )


def _is_told(change: KernelChange) -> bool:
    times = (change.before_step_ns, change.after_step_ns)
    largest = max(time or 0.0 for time in times) if None not in times else max(change.before_ns, change.after_ns)
    return change.difference_ns != 0 and abs(change.difference_ns) >= LEAST_KERNEL_CHANGE * largest


_KERNELS = """
SELECT coalesce(text.text, '(unnamed)'), grid_blocks, block_threads, count(*), sum(end_ns - start_ns)::BIGINT
FROM device_op JOIN steady_window ON start_ns >= from_ns AND start_ns < until_ns LEFT JOIN text ON text_id = name_id
WHERE kind = 'kernel'
GROUP BY ALL
ORDER BY ALL
"""
