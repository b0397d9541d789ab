"""The first line of every screen: where one is and where one can go."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

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


class NavigationBar(Static):
    """Names of the screens with their number keys; the current one stands out by brackets and colour."""

    DEFAULT_CSS = """
    NavigationBar { dock: top; height: 1; background: $panel; color: $foreground; padding: 0 1; text-wrap: nowrap; }
    """

    def __init__(self, here: str) -> None:
        self._here = here
        super().__init__()

    def show(self, snapshot: Snapshot) -> None:
        """Show what is open at the right, where there is room."""
        self.update(Content.assemble(self._places(), "  ", (snapshot.title, "$foreground-muted")))

    def on_mount(self) -> None:
        """Stand before anything is open."""
        self.update(self._places())

    def _places(self) -> Content:
        parts: list[Content] = []
        for number, (mode, word) in enumerate(PLACES, start=1):
            label = f"{number} {word}"
            if mode == self._here:  # no link: those have a colour of their own
                parts.append(Content.styled(label, "bold $background on $primary"))
            else:
                parts.append(Content(label).stylize(f"@click=app.go('{mode}')"))
        return Content(" ").join(parts)
