"""The coarse time-line as shapes: what is printed, and seen where scripts do not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from doctor.diagnosis.outcome import Diagnosis, Window
from doctor.reports.html_page.places import Place, places
from doctor.units import format_ns, format_share

_LEFT, _WIDTH = 110, 1000
_ROW_HEIGHT, _BAR_HEIGHT, _TOP = 36, 30, 14
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class CoarseRow:
    """One kind of work: a path of bars under `top`."""

    name: str
    top: int
    path: str


@dataclass(frozen=True)
class CoarsePlace:
    """A rectangle around evidence."""

    finding: int
    x: str
    width: str


@dataclass(frozen=True)
class Coarse:
    """The picture, in units of its view box."""

    rows: tuple[CoarseRow, ...]
    places: tuple[CoarsePlace, ...]
    height: int
    length: str
    description: str
    left: int = _LEFT
    width: int = _WIDTH


def coarse(diagnosis: Diagnosis) -> Coarse | None:
    """The picture of the busiest device; None where the evidence has no time-line."""
    window, cells = diagnosis.window, diagnosis.display.timeline
    if window is None or not cells:
        return None
    kinds = (
        ("compute", [cell.compute_share for cell in cells]),
        ("communication", [cell.communication_share for cell in cells]),
        ("copies", [cell.copy_share for cell in cells]),
    )
    shown = [(name, shares) for name, shares in kinds if name == "compute" or max(shares) >= _LEAST_SHARE]
    rows = tuple(
        CoarseRow(name, _TOP + place * _ROW_HEIGHT, _path(shares, _TOP + place * _ROW_HEIGHT))
        for place, (name, shares) in enumerate(shown)
    )
    length = format_ns(window.end_ns - window.start_ns)
    means = ", ".join(f"{name} {format_share(sum(shares) / len(shares))}" for name, shares in shown)
    return Coarse(
        rows,
        tuple(_rectangle(place, window) for place in places(diagnosis)),
        _TOP + len(rows) * _ROW_HEIGHT + 14,
        length,
        f"Time-line of the busiest device over {length}; shares of the window: {means}",
    )


def _path(shares: Sequence[float], top: int) -> str:
    """Bars from the bottom of the row upwards; empty bins draw nothing."""
    step, bottom = (_WIDTH - _LEFT) / len(shares), top + _BAR_HEIGHT
    return "".join(
        f"M{_LEFT + place * step:.1f} {bottom}v{-_BAR_HEIGHT * min(share, 1.0):.1f}h{step:.1f}V{bottom}z"
        for place, share in enumerate(shares)
        if share > 0
    )


def _rectangle(place: Place, window: Window) -> CoarsePlace:
    scale = (_WIDTH - _LEFT) / max(window.end_ns - window.start_ns, 1)
    width = max((place.end_ns - place.start_ns) * scale, 2.0)
    return CoarsePlace(place.finding, f"{_LEFT + place.start_ns * scale:.1f}", f"{width:.1f}")
