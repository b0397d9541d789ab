"""The coarse time-line as rows of cells, one row per kind of device work; readable without colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from doctor.diagnosis.outcome import TimelineBin

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Row:
    """One kind of work: `label`, and `cells`, a character per stretch of time whose height is the share busy."""

    label: str
    cells: str


def rows(timeline: Sequence[TimelineBin], width: int, *, is_unicode: bool) -> tuple[Row, ...]:
    """Rows of at most `width` cells; kinds that never take one hundredth of any bin are left out."""
    kinds = (
        ("compute", [cell.compute_share for cell in timeline]),
        ("communication", [cell.communication_share for cell in timeline]),
        ("copy", [cell.copy_share for cell in timeline]),
    )
    levels = _BLOCKS if is_unicode else _ASCII
    return tuple(
        Row(label, "".join(_cell(share, levels) for share in _merge(shares, width)))
        for label, shares in kinds
        if max(shares, default=0.0) >= _LEAST_SHARE
    )


def _merge(shares: Sequence[float], width: int) -> list[float]:
    """Means of neighbouring bins, so that at most `width` are left."""
    cells = min(width, len(shares))
    edges = [index * len(shares) // cells for index in range(cells + 1)]
    return [sum(shares[low:high]) / (high - low) for low, high in pairwise(edges)]


def _cell(share: float, levels: str) -> str:
    """The level of a share; anything but nothing shows at least the lowest mark."""
    if share <= 0:
        return levels[0]
    top = len(levels) - 1
    return levels[min(top, max(1, round(share * top)))]
