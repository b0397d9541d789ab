"""Asks for the name of a file to write."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class AskFileScreen(ModalScreen[str | None]):
    """One line to type a name in; None where it was left."""

    CSS_PATH = "open.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave", "Cancel")]

    def __init__(self, question: str, proposal: str) -> None:
        self._question = question
        self._proposal = proposal
        super().__init__()

    def compose(self) -> ComposeResult:
        """A question and a line."""
        with Vertical(id="box"):
            yield Static(self._question)
            yield Input(self._proposal)
            yield Static("a name that ends in .csv or .parquet; Enter writes, Esc cancels", classes="caption")

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_leave(self) -> None:
        """Write nothing."""
        self.dismiss(None)
