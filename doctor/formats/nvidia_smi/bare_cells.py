"""A row of `nvidia-smi --query-gpu` without a header: cells told by their units, as far as those leave no doubt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from doctor.formats.nvidia_smi import quantities as q
from doctor.formats.nvidia_smi.fields import reasons_of_mask

_UNIT = re.compile(r"-?\d{1,12}(?:\.\d{1,4})? (MiB|MHz|W|%)$")
_PLAIN = re.compile(r"\d{1,4}$")
_NAME = re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|GRID|A\d{2,4})[\w ./-]{0,60}$")
_MASK = re.compile(r"0x[0-9a-fA-F]{16}$")
_OTHER = re.compile(
    r"(?:GPU-[0-9a-f-]{36}|\[?N/A\]?|\[Not Supported\]|(?:Not )?Active|Enabled|Disabled|Default|\d+\.\d+\.\d+)$"
)
_FEWEST_UNITS = 2
_MOST_CELLS = 40


def figures_of_cells(cells: Sequence[str]) -> dict[str, Any] | None:
    """Figures of one row; None where a cell is unlike any that nvidia-smi prints.

    Of several cells with the same unit only those are taken whose order does not matter: the larger of two memories is
    the total, of two powers the limit; two loads stand in the tool's own order; of several clocks none is taken.
    """
    if not _FEWEST_UNITS <= len(cells) <= _MOST_CELLS:
        return None
    by_unit: dict[str, list[str]] = {}
    row: dict[str, Any] = {}
    for place, cell in enumerate(cells):
        if (unit := _UNIT.match(cell)) is not None:
            by_unit.setdefault(unit.group(1), []).append(cell)
        elif not _take_plain(row, place, cell):
            return None
    if sum(len(found) for found in by_unit.values()) < _FEWEST_UNITS:
        return None
    return row | _with_units(by_unit)


def _take_plain(row: dict[str, Any], place: int, cell: str) -> bool:
    """A cell without a unit; False where it is none of the tool's."""
    if place == 0 and _PLAIN.match(cell) and len(cell) < 4:
        row["device_id"] = int(cell)
    elif _NAME.match(cell):
        row["name"] = q.word(cell)
    elif _MASK.match(cell):
        row |= reasons_of_mask(int(cell, 16))
    elif (state := q.performance_state(cell)) is not None:
        row["performance_state"] = state
    elif (time_ns := q.time_ns(cell)) is not None:
        row["time_ns"] = time_ns
    elif re.fullmatch(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d", cell):
        row["pci_bus_id"] = q.bus_id(cell)
    else:
        return _PLAIN.match(cell) is not None or _OTHER.match(cell) is not None
    return True


def _with_units(by_unit: dict[str, list[str]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    memory = sorted(size for cell in by_unit.get("MiB", []) if (size := q.size_bytes(cell)) is not None)
    if len(memory) == 2:
        row |= {"memory_used_bytes": memory[0], "memory_total_bytes": memory[1]}
    elif len(memory) > 2:
        row["memory_total_bytes"] = memory[-1]
    power = sorted(watts for cell in by_unit.get("W", []) if (watts := q.amount(cell, "w")) is not None)
    if power:
        row["power_watts"] = power[0]
    if len(power) == 2:
        row["power_limit_watts"] = power[1]
    loads = [share for cell in by_unit.get("%", []) if (share := q.share(cell)) is not None]
    if len(loads) in (1, 2):
        row |= dict(zip(("busy_share", "memory_busy_share"), loads, strict=False))
    clocks = by_unit.get("MHz", [])
    if len(clocks) == 1:
        row["sm_clock_hz"] = q.clock_hz(clocks[0])
    return row
