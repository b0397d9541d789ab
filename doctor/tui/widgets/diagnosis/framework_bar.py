"""The frameworks that a finding has fixes for, as tabs in one line."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from doctor.reports import wording


class FrameworkBar(Static, can_focus=True):
    """One tab a framework; the chosen one stands in brackets, and stays chosen for the next finding that has it."""

    DEFAULT_CSS = """
    FrameworkBar { height: auto; margin-bottom: 1; }
    FrameworkBar:focus { background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", "Previous framework", show=False),
        Binding("right", "turn(1)", "Next framework", show=False),
    ]

    class Chosen(Message):
        """Another framework is chosen."""

    def __init__(self) -> None:
        self._targets: tuple[str, ...] = ()
        self._wanted = ""
        super().__init__()

    @property
    def chosen(self) -> str:
        """The framework that is shown; empty where there is none."""
        return self._wanted if self._wanted in self._targets else next(iter(self._targets), "")

    def show(self, targets: tuple[str, ...]) -> None:
        """Offer these frameworks."""
        self._targets = targets
        self.display = bool(targets)
        self._paint()

    def action_turn(self, direction: int) -> None:
        """Choose the next or the previous framework."""
        if self._targets:
            place = self._targets.index(self.chosen) + direction
            self.action_choose(self._targets[place % len(self._targets)])

    def action_choose(self, target: str) -> None:
        """Choose a framework."""
        self._wanted = target
        self._paint()
        self.post_message(self.Chosen())

    def _paint(self) -> None:
        self.update(Content(" ").join(self._tab(target) for target in self._targets))

    def _tab(self, target: str) -> Content:
        word = wording.framework(target)
        if target == self.chosen:  # no link: those have a colour of their own
            return Content.styled(f"[{word}]", "bold $primary")
        return Content(f" {word} ").stylize(f"@click=choose({target!r})")
