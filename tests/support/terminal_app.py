"""The terminal application under test: really loaded, really drawn, on a screen of a given size."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from textual import events
from textual.pilot import Pilot
from textual.widget import Widget

import doctor
from doctor.case.derive import derive
from doctor.diagnosis.options import DiagnosisOptions
from doctor.tui.app import DoctorApp
from doctor.tui.snapshot import Phase
from doctor.tui.widgets.timeline.canvas import TimelineCanvas

SMALL = (80, 24)
LARGE = (160, 50)
_SECONDS = 20.0
_BETWEEN_LOOKS = 0.02


def saved_case(trace: Path, folder: Path) -> Path:
    """A case file of a trace with its derived tables."""
    path = folder / f"{trace.name.split('.')[0]}.duckdb"
    with closing(doctor.load(trace, save=path)) as case:
        derive(case)
    return path


class Terminal:
    """What a person at the terminal can do and see."""

    def __init__(self, app: DoctorApp, pilot: Pilot[None]) -> None:
        self.app = app
        self._pilot = pilot

    @property
    def text(self) -> str:
        """The screen as lines of text, without trailing blanks."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    async def go(self, mode: str) -> None:
        """Begin a scene at a screen, with nothing lying over it."""
        while len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        await self.app.action_go(mode)
        await self._pilot.pause()

    async def press(self, *keys: str) -> None:
        """Press keys, one after another, and let the application take them in."""
        await self._pilot.press(*keys)
        await self._pilot.pause()

    async def scroll_up(self, widget: Widget, at: tuple[int, int]) -> None:
        """Turn the wheel over a place of a widget."""
        await self._pilot._post_mouse_events([events.MouseScrollUp], widget, at)
        await self._pilot.pause()

    async def click(self, widget: Widget, at: tuple[int, int]) -> None:
        """Click on a place of a widget."""
        await self._pilot.click(widget, offset=at)
        await self._pilot.pause()

    async def drag(self, widget: Widget, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Press at one place of a widget, move, and let go at another."""
        await self._pilot.mouse_down(widget, start)
        await self._pilot.hover(widget, end)
        await self._pilot.mouse_up(widget, end)

    async def type(self, text: str) -> None:
        """Type a text."""
        names = {" ": "space", "/": "slash", ".": "full_stop", "-": "minus", "_": "underscore", "*": "asterisk"}
        await self.press(*(names.get(character, character) for character in text))

    async def sees(self, pattern: str) -> str:
        """Wait until a pattern stands on the screen, and give the screen."""
        await self.until(lambda: re.search(pattern, self.text) is not None, f"{pattern!r} on the screen")
        return self.text

    async def until(self, is_true: Callable[[], bool], what: str) -> None:
        """Wait until something is true."""
        deadline = asyncio.get_running_loop().time() + _SECONDS
        while not is_true():
            assert asyncio.get_running_loop().time() < deadline, f"waited in vain for {what}:\n{self.text}"
            await self._pilot.pause(_BETWEEN_LOOKS)

    async def settled(self) -> str:
        """Wait until the time-line shows what was asked for last, and give the screen."""
        canvas = self.app.screen.query_one(TimelineCanvas)
        await self.until(lambda: canvas.is_current, "the time-line")
        await self._pilot.pause()
        return self.text


@asynccontextmanager
async def terminal(
    *paths: Path, size: tuple[int, int] = SMALL, options: DiagnosisOptions | None = None
) -> AsyncIterator[Terminal]:
    """The application on a screen of so many columns and lines, once it has diagnosed the evidence."""
    app = DoctorApp(tuple(str(path) for path in paths), options)
    async with app.run_test(size=size, notifications=True) as pilot:
        opened = Terminal(app, pilot)
        if paths:
            await opened.until(lambda: app.snapshot.phase in {Phase.DONE, Phase.FAILED}, "the diagnosis")
        await pilot.pause()
        yield opened


def at_a_terminal(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene."""

    async def play() -> None:
        await scene()

    asyncio.run(play())


class Stage:
    """One application that several scenes are played on: opening it costs more than most scenes."""

    def __init__(self, case: Path, size: tuple[int, int]) -> None:
        self._runner = asyncio.Runner()
        self._opened = terminal(case, size=size)
        self._person = self._runner.run(self._open())

    async def _open(self) -> Terminal:
        return await self._opened.__aenter__()

    async def _leave(self) -> None:
        await self._opened.__aexit__(None, None, None)

    def play(self, scene: Callable[[Terminal], Coroutine[Any, Any, None]]) -> None:
        """Play a scene."""
        self._runner.run(scene(self._person))

    def close(self) -> None:
        """Leave the application."""
        self._runner.run(self._leave())
        self._runner.close()
