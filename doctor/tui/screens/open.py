"""Asks for a path to load."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import Input, Static


class _PathSuggester(Suggester):
    """Completes the name of a file or folder."""

    async def get_suggestion(self, value: str) -> str | None:
        """The first entry of the folder that begins like what is typed."""
        typed = Path(value).expanduser()
        folder, start = (typed, "") if value.endswith("/") else (typed.parent, typed.name)
        try:
            names = sorted(entry.name for entry in folder.iterdir() if entry.name.startswith(start))
        except OSError:
            return None
        return f"{value}{names[0][len(start) :]}" if names else None


class OpenScreen(ModalScreen[tuple[str, ...]]):
    """One line to type a path or pattern in; the right arrow takes the completion."""

    CSS_PATH = "open.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave", "Cancel")]

    def compose(self) -> ComposeResult:
        """A question and a line."""
        with Vertical(id="box"):
            yield Static("Open a recording, a folder of recordings, or a saved case")
            yield Input(placeholder="path or pattern", suggester=_PathSuggester(use_cache=False))
            yield Static("Enter opens, → completes, Esc cancels", classes="caption")

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        path = event.value.strip()
        if path:
            self.dismiss((str(Path(path).expanduser()),))

    def action_leave(self) -> None:
        """Open nothing."""
        self.dismiss(())
