"""The application: holds the state, loads evidence, switches screens. Screens ask the case themselves."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import Screen
from textual.worker import Worker

from doctor.diagnosis.options import DiagnosisOptions
from doctor.errors import DoctorError
from doctor.tui import clipboard, looks
from doctor.tui.case_desk import CaseDesk
from doctor.tui.loading.events import CaseReady, Diagnosed, LoadEvent, LoadFailed, LoadRequest, Reading, Stage
from doctor.tui.loading.process import LoadingProcess
from doctor.tui.messages import CopyText, OpenEvidence, ShowPlace
from doctor.tui.screens.base import DoctorScreen
from doctor.tui.screens.diagnosis import DiagnosisScreen
from doctor.tui.screens.help import HelpScreen
from doctor.tui.screens.open import OpenScreen
from doctor.tui.snapshot import Phase, Snapshot
from doctor.tui.widgets.navigation import PLACES


def screen_of(mode: str, word: str) -> Screen[Any]:
    """A screen, imported when it is first shown: most bring DuckDB, which the first paint does not wait for."""
    module = import_module(f"doctor.tui.screens.{mode}")
    screen: Screen[Any] = getattr(module, f"{word.capitalize()}Screen")()
    return screen


class DoctorApp(App[None]):
    """The diagnosis as a terminal application.

    Args:
        paths: evidence to load; none opens an empty application.
        options: the window and the rules.
        rules: folder with further rules.
        reader: who reads a native report.
    """

    TITLE = "Inference Doctor"
    CSS_PATH = "app.tcss"
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        "diagnosis": DiagnosisScreen,
        **{mode: partial(screen_of, mode, word) for mode, word in PLACES[1:]},
    }
    DEFAULT_MODE = "diagnosis"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"go('{mode}')", word, show=False) for number, (mode, word) in enumerate(PLACES, 1)),
        Binding("question_mark", "show_help", "Keys", key_display="?"),
        Binding("o", "open", "Open", show=False),
        Binding("ctrl+t", "toggle_theme", "Light or dark", show=False),
        Binding("q", "quit", "Quit"),
    ]

    snapshot: reactive[Snapshot] = reactive(Snapshot(), init=False)

    def __init__(
        self,
        paths: tuple[str, ...] = (),
        options: DiagnosisOptions | None = None,
        rules: Path | None = None,
        reader: str = "native",
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="doctor-tui-"))
        self._request = partial(LoadRequest, options=options or DiagnosisOptions(), rules=rules, reader=reader)
        self._paths = paths
        self._loading: LoadingProcess | None = None
        self._came_from = self.DEFAULT_MODE
        super().__init__()
        for theme in looks.THEMES:
            self.register_theme(theme)
        self.theme = looks.DARK

    def on_mount(self) -> None:
        """Begin to load once the first screen stands."""
        if self._paths:
            self.call_after_refresh(self.load, self._paths)

    def on_unmount(self) -> None:
        """Leave no process and no file behind."""
        self.tidy_up()

    def tidy_up(self) -> None:
        """End what runs and remove what was written; also where a terminal that went away let nothing be unmounted."""
        if self._loading is not None:
            self._loading.stop()
        if self.snapshot.case is not None:
            self.snapshot.case.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def load(self, paths: tuple[str, ...]) -> None:
        """Load and diagnose evidence in a process of its own, in place of what is open."""
        if self._loading is not None:
            self._loading.stop()
        if self.snapshot.case is not None:
            self.snapshot.case.close()
        self.snapshot = Snapshot(Phase.LOADING, paths, "reading")
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        self._loading = LoadingProcess(self._request(paths, folder=folder))
        self._follow(self._loading)

    @work(thread=True, group="loading", exclusive=True)
    def _follow(self, process: LoadingProcess) -> None:
        for event in process.events():
            self.call_from_thread(self._loaded, process, event)

    def _loaded(self, process: LoadingProcess, event: LoadEvent) -> None:
        if process is not self._loading:
            return  # other evidence has been asked for meanwhile
        match event:
            case Reading():
                share = min(event.done_bytes / event.total_bytes, 1.0) if event.total_bytes else None
                self.snapshot = replace(self.snapshot, stage="reading", done_share=share)
            case Stage():
                self.snapshot = replace(self.snapshot, stage=event.name, done_share=None)
            case CaseReady():
                self._open_case(event)
            case Diagnosed():
                self.snapshot = replace(self.snapshot, phase=Phase.DONE, stage="", diagnosis=event.diagnosis)
            case LoadFailed():
                self.snapshot = replace(self.snapshot, phase=Phase.FAILED, error=event.message)

    def _open_case(self, event: CaseReady) -> None:
        case = CaseDesk(event.case)
        self.snapshot = replace(self.snapshot, phase=Phase.DIAGNOSING, stage="drawing the time-line", case=case)
        self._preparing: Worker[None] = self.run_worker(partial(self._prepare, case), group="prepare")
        if event.passed_by:
            self.notify(f"{len(event.passed_by)} files were passed by: no reader knows them")

    async def _prepare(self, case: CaseDesk) -> None:
        try:
            await case.prepare()
        except DoctorError as error:
            self.snapshot = replace(self.snapshot, phase=Phase.FAILED, error=error.message)

    async def action_go(self, mode: str) -> None:
        """Show another screen."""
        if mode != self.current_mode:
            self._came_from = self.current_mode
            await self.switch_mode(mode)

    async def action_back(self) -> None:
        """Return to the screen before this one."""
        await self.action_go(self._came_from)

    def action_toggle_theme(self) -> None:
        """Change between the light and the dark theme."""
        self.theme = looks.LIGHT if self.current_theme.dark else looks.DARK

    def action_show_help(self) -> None:
        """Show the keys of this screen."""
        self.push_screen(HelpScreen(self.screen))

    @work
    async def action_open(self) -> None:
        """Ask for other evidence and load it."""
        paths = await self.push_screen_wait(OpenScreen())
        if paths:
            self.post_message(OpenEvidence(paths))

    @on(OpenEvidence)
    async def _evidence_chosen(self, message: OpenEvidence) -> None:
        self.load(message.paths)
        await self.action_go("diagnosis")

    @on(ShowPlace)
    async def _place_chosen(self, message: ShowPlace) -> None:
        await self.action_go("timeline")
        if isinstance(self.screen, DoctorScreen):
            self.screen.show_place(message.place)

    @on(CopyText)
    def _copy_asked(self, message: CopyText) -> None:
        clipboard.copy(self, message.text)
        self.notify(message.text, title=f"Copied {message.what}", markup=False)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The screens and the application's own actions, in the command palette."""
        for mode, word in PLACES:
            yield SystemCommand(word, f"Go to the screen {word}", partial(self.action_go, mode))
        yield SystemCommand("Open", "Load and diagnose other evidence", self.action_open)
        yield SystemCommand("Light or dark", "Change between the light and the dark theme", self.action_toggle_theme)
        yield from super().get_system_commands(screen)
