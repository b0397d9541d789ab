"""How each kind of work looks: a colour, and a shape of its own for whoever cannot use the colour."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rich.color import Color
from rich.style import Style

from doctor.case.timeline.items import Work

_BLOCKS = "▁▂▃▄▅▆▇█"
_SHADES = "░░░▒▒▒▓▓"
_DOTS = "⡀⣀⣄⣤⣦⣶⣷⣿"
LEVELS = len(_BLOCKS)


@dataclass(frozen=True)
class Look:
    """One kind of work: its word, its shape from nearly idle to busy, its colour on dark and on light."""

    word: str
    levels: str
    dark: str
    light: str

    def colour(self, *, is_dark: bool) -> str:
        """The colour on this background."""
        return self.dark if is_dark else self.light


LOOKS = {
    Work.COMPUTE: Look("compute", _BLOCKS, "#56B4E9", "#005F99"),
    Work.COMMUNICATION: Look("communication", _DOTS, "#DD9CC0", "#8F3A74"),
    Work.COPY: Look("copy", _SHADES, "#E69F00", "#8F5600"),
    Work.GRAPH: Look("CUDA graph", _BLOCKS, "#2FC39A", "#00694F"),
    Work.LAUNCH: Look("launch", _BLOCKS, "#9DB2C6", "#475B6D"),
    Work.WAIT: Look("wait", _DOTS, "#F0713A", "#A83A00"),
    Work.CALL: Look("other call", _SHADES, "#8A97A3", "#66727D"),
    Work.RANGE: Look("range", _BLOCKS, "#7FB8A4", "#2A6B55"),
    Work.MEMSET: Look("memory set", _SHADES, "#C9B458", "#6E5A00"),
    Work.STEP: Look("step", _BLOCKS, "#D9C64E", "#6E6300"),
}


def cell_text(work: Work, share: float, height: int) -> list[str]:
    """The characters of one cell from bottom to top; anything but nothing shows at least the lowest mark."""
    filled = max(1, round(share * height * LEVELS)) if share > 0 else 0
    levels = LOOKS[work].levels
    parts = (min(max(filled - row * LEVELS, 0), LEVELS) for row in range(height))
    return [levels[part - 1] if part else " " for part in parts]


@lru_cache(maxsize=256)
def cell_style(work: Work, *, is_dark: bool) -> Style:
    """Colour of a cell."""
    return Style(color=LOOKS[work].colour(is_dark=is_dark))


@lru_cache(maxsize=256)
def box_style(work: Work, *, is_odd: bool, is_dark: bool) -> Style:
    """Colour of an item that is wide enough to be a box; neighbours differ in tone."""
    base = Color.parse(LOOKS[work].colour(is_dark=is_dark)).get_truecolor()
    strength = (0.78 if is_odd else 1.0) if is_dark else (0.82 if is_odd else 1.0)
    red, green, blue = (round(part * strength) for part in base)
    text = "#0B0E11" if is_dark else "#FFFFFF"
    return Style(color=text, bgcolor=Color.from_rgb(red, green, blue))
