"""The keys of a screen, read from its bindings, so that none is forgotten."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

_GENERAL = (
    ("1 ... 8", "the screens, by their numbers"),
    ("Tab, Shift+Tab", "next and previous part of the screen"),
    ("Ctrl+P", "command palette: everything by its name"),
    ("o", "open other evidence"),
    ("Ctrl+T", "light or dark"),
    ("q, Ctrl+Q", "quit"),
    ("Esc", "close this"),
)


class HelpScreen(ModalScreen[None]):
    """What the keys do on the screen below."""

    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [("escape,question_mark,q", "dismiss", "Close")]

    def __init__(self, below: Screen[Any]) -> None:
        self._below = below
        super().__init__()

    def compose(self) -> ComposeResult:
        """Two columns: key, and what it does."""
        keys = [*_own_keys(self._below), ("", ""), *_GENERAL]
        width = max(len(key) for key, _ in keys) + 2
        lines = [Content.assemble((f"{key:<{width}}", "bold $primary"), word) for key, word in keys]
        with VerticalScroll(id="box"):
            yield Static(Content.styled(type(self._below).__name__.removesuffix("Screen"), "bold"))
            yield Static(Content("\n").join(lines))


def _own_keys(screen: Screen[Any]) -> list[tuple[str, str]]:
    """What the screen and the time-line on it declare themselves; every widget's own keys would fill pages."""
    found: dict[str, list[str]] = {}
    for widget in (screen, *screen.query("TimelineCanvas")):
        for binding in Binding.make_bindings(type(widget).BINDINGS):
            found.setdefault(binding.description, []).append(screen.app.get_key_display(binding))
    return [(", ".join(dict.fromkeys(keys)), word) for word, keys in found.items()]
