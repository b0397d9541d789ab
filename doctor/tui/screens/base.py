"""What all screens have in common: the navigation, the wait for the case, the footer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.types import CSSPathType
from textual.widgets import Footer
from textual.worker import Worker

from doctor.tui.messages import Place
from doctor.tui.snapshot import Phase, Snapshot
from doctor.tui.widgets.navigation import NavigationBar
from doctor.tui.widgets.waiting import Waiting

if TYPE_CHECKING:
    from doctor.tui.app import DoctorApp
    from doctor.tui.case_desk import CaseDesk


class DoctorScreen(Screen[None]):
    """A screen of the application; subclasses compose the body and fill it when the case is there.

    Attributes:
        MODE: its name in the navigation.
        NEEDS_CASE: it shows nothing before a case is open.
    """

    MODE: ClassVar[str]
    NEEDS_CASE: ClassVar[bool] = True
    CSS_PATH: ClassVar[CSSPathType | None] = ["base.tcss"]
    AUTO_FOCUS: ClassVar[str | None] = ""  # an input line that is not shown yet would swallow the number keys

    def __init__(self) -> None:
        self.case: CaseDesk | None = None
        super().__init__()

    @property
    def doctor(self) -> DoctorApp:
        """The application, with its own type."""
        return cast("DoctorApp", self.app)

    def compose(self) -> ComposeResult:
        """Navigation, what is waited for, the body, the keys."""
        yield NavigationBar(self.MODE)
        yield Waiting(id="waiting")
        with Container(id="body"):
            yield from self.compose_body()
        yield Footer(show_command_palette=False)

    def compose_body(self) -> ComposeResult:
        """What the screen shows once it has what it needs."""
        yield from ()

    def on_mount(self) -> None:
        """Follow the application's state from now on."""
        self.watch(self.app, "snapshot", self._changed)
        self.watch(self.app, "theme", self._theme_changed, init=False)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], group: str) -> Worker[None]:
        """Do something beside the screen; of one group only the last goes on."""
        return self.run_worker(work, group=group, exclusive=True)

    def _changed(self, snapshot: Snapshot) -> None:
        self.query_one(NavigationBar).show(snapshot)
        self.query_one(Waiting).show(snapshot)
        self.set_class(self.is_waiting(snapshot), "-waiting")
        if snapshot.case is not self.case:
            self.case = snapshot.case
            if self.case is not None:
                self.case_opened(self.case)
        self.snapshot_changed(snapshot)

    def is_waiting(self, snapshot: Snapshot) -> bool:
        """True where the body has nothing to show yet."""
        return self.NEEDS_CASE and (snapshot.case is None or snapshot.phase is Phase.FAILED)

    def _theme_changed(self) -> None:
        self.call_after_refresh(self.repaint)

    def repaint(self) -> None:
        """The theme is another one: paint again what does not take its colours from the style sheet."""

    def show_place(self, place: Place) -> None:
        """Show a place of the recording, on the screen that has places."""

    def case_opened(self, case: CaseDesk) -> None:
        """Another case is open: ask it for what the screen shows."""

    def snapshot_changed(self, snapshot: Snapshot) -> None:
        """Something of the state is new."""
