"""The first line of every screen: where one is and where one can go."""

from __future__ import annotations

import re
from collections.abc import Mapping

from textual.content import Content
from textual.widgets import Static

from doctor.reports import wording
from doctor.tui.snapshot import Snapshot

PLACES = (
    ("diagnosis", "Diagnosis"),
    ("timeline", "Timeline"),
    ("kernels", "Kernels"),
    ("steps", "Steps"),
    ("memory", "Memory"),
    ("sql", "SQL"),
    ("vitals", "Vitals"),
    ("engine", "Engine"),
)
"""Mode of the application and the word for it; the number key is the place in this list."""
_SHORT = {
    "Diagnosis": "Diag",
    "Timeline": "Time",
    "Kernels": "Kern",
    "Steps": "Step",
    "Memory": "Mem",
    "Vitals": "Vit",
    "Engine": "Eng",
}
_LEAST_NAME = 20
"""Columns in which the name of a file can be read, its middle left out."""
_KIND = re.compile(r"(\.(nsys-rep|qdrep|sqlite|pt|trace|json|jsonl|pickle|duckdb|txt|log|gz|zst))+$")


class NavigationBar(Static):
    """Names of the screens with their number keys; the current one stands out by brackets and colour."""

    DEFAULT_CSS = """
    NavigationBar { dock: top; height: 1; background: $panel; color: $foreground; padding: 0 1; text-wrap: nowrap; }
    """

    def __init__(self, here: str) -> None:
        self._here = here
        self._title = ""
        super().__init__()

    def show(self, snapshot: Snapshot) -> None:
        """Show what is open at the right; where that leaves it no room the other screens go by short names."""
        self._title = wording.clean(snapshot.title)
        self._draw()

    def on_resize(self) -> None:
        """As much of the name as there is room for."""
        self._draw()

    def _draw(self) -> None:
        places = self._places(
            _SHORT if self._room_beside(self._places({})) < min(len(self._title), _LEAST_NAME) else {}
        )
        name = _without_middle(self._title, self._room_beside(places))
        self.update(Content.assemble(places, "  ", (name, "$foreground-muted")))

    def _room_beside(self, places: Content) -> int:
        return self.content_size.width - places.cell_length - 2

    def _places(self, short: Mapping[str, str]) -> Content:
        parts: list[Content] = []
        for number, (mode, word) in enumerate(PLACES, start=1):
            if mode == self._here:  # no link: those have a colour of their own
                parts.append(Content.styled(f"{number} {word}", "bold $background on $primary"))
            else:
                parts.append(Content(f"{number} {short.get(word, word)}").stylize(f"@click=app.go('{mode}')"))
        return Content(" ").join(parts)


def _without_middle(name: str, width: int) -> str:
    """Both ends of a name, which tell what it is of; its kind goes first."""
    if len(name) <= width:
        return name
    stem = _KIND.sub("", name)
    tail = max(width - 1, 2) // 2
    return stem if len(stem) <= width else f"{stem[: max(width - 1, 2) - tail]}…{stem[-tail:]}"
