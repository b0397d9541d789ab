"""The engine under a documented condition: start it, watch it, record it, diagnose the recording."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.types import CSSPathType
from textual.widgets import Input, OptionList, RichLog, Static
from textual.widgets.option_list import Option

from doctor.errors import DoctorError
from doctor.reports.wording import clean
from doctor.tui.engine_run.commands import BenchRun, Condition, conditions
from doctor.tui.engine_run.process import WatchedProcess
from doctor.tui.messages import OpenEvidence
from doctor.tui.screens.base import DoctorScreen
from doctor.units import format_bytes, format_count

_FEW_REQUESTS = "--num-requests 8 --prompt-tokens 16 64 --output-tokens 16 32"


class EngineScreen(DoctorScreen):
    """Conditions at the left; what the chosen one is, and the run, at the right."""

    MODE = "engine"
    NEEDS_CASE = False
    CSS_PATH: ClassVar[CSSPathType | None] = ["base.tcss", "engine.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "run_sick", "Run ill"),
        Binding("c", "run_cured", "Run cured"),
        Binding("x", "stop", "Stop"),
        Binding("d", "diagnose", "Diagnose"),
        Binding("escape", "leave", "To the list"),
    ]

    def __init__(self) -> None:
        self._conditions: tuple[Condition, ...] = ()
        self._run: WatchedProcess | None = None
        self._trace: Path | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="doctor-engine-")
        super().__init__()

    def compose_body(self) -> ComposeResult:
        """List, description, inputs, log."""
        with Horizontal():
            yield OptionList(id="conditions")
            with Vertical():
                yield Static("Asking the engine ...", id="about")
                yield Input(placeholder="folder of a checkpoint (required)", id="model")
                yield Input(_FEW_REQUESTS, id="further")
                yield RichLog(id="log", wrap=True, markup=False)

    def on_mount(self) -> None:
        """Ask the engine what it offers."""
        super().on_mount()
        self.start(self._list, "begin")

    def on_unmount(self) -> None:
        """Leave no process behind."""
        if self._run is not None:
            self._run.stop()
        self._folder.cleanup()

    async def _list(self) -> None:
        about = self.query_one("#about", Static)
        try:
            self._conditions = await conditions()
        except DoctorError as error:
            about.update(Content.styled(error.message, "$warning"))
            return
        listed = self.query_one("#conditions", OptionList)
        listed.set_options(Option(condition.name, id=condition.name) for condition in self._conditions)
        listed.highlighted = 0
        listed.focus()

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one("#about", Static).update(_about(self._conditions[event.option_index]))

    def action_run_sick(self) -> None:
        """Run the engine with the problem."""
        self._start(is_cured=False)

    def action_run_cured(self) -> None:
        """Run the engine with the cure in its place."""
        self._start(is_cured=True)

    def action_stop(self) -> None:
        """End the run."""
        if self._run is not None:
            self._run.stop()

    def action_leave(self) -> None:
        """Back from an input to the list."""
        self.query_one("#conditions", OptionList).focus()

    def action_diagnose(self) -> None:
        """Diagnose the recording of the last run."""
        if self._trace is None or not self._trace.is_file():
            self.notify("There is no recording yet: run a condition first", severity="warning")
            return
        self.post_message(OpenEvidence((str(self._trace),)))

    def _start(self, *, is_cured: bool) -> None:
        place = self.query_one("#conditions", OptionList).highlighted
        model = self.query_one("#model", Input).value.strip()
        if place is None:
            return
        if not model:
            self.notify("Name the folder of a checkpoint first", severity="warning")
            self.query_one("#model", Input).focus()
            return
        if self._run is not None and self._run.exit_code is None:
            self.notify("A run is under way: x stops it", severity="warning")
            return
        name = f"{self._conditions[place].name}{'-cured' if is_cured else ''}"
        self._trace = Path(self._folder.name, f"{name}.pt.trace.json.gz")
        further = self.query_one("#further", Input).value
        run = BenchRun(model, self._conditions[place].name, is_cured, self._trace, further)
        try:
            self._run = WatchedProcess(run.arguments)
        except ValueError as error:
            self.notify(f"The options cannot be read: {error}", severity="error", markup=False)
            return
        self._watch(self._run, name)

    @work(exclusive=True, group="engine")
    async def _watch(self, run: WatchedProcess, name: str) -> None:
        log = self.query_one("#log", RichLog)
        log.write(f"--- {name}")
        async for line in run.lines():
            log.write(_worded(line))
        if run.exit_code == 0:
            log.write("--- done: d diagnoses the recording")
        else:
            log.write(f"--- ended with {run.exit_code}")


def _about(condition: Condition) -> Content:
    lines = [
        Content.styled(condition.problem, "bold"),
        Content.assemble(("ill    ", "$error"), condition.sick),
        Content.assemble(("cured  ", "$success"), condition.cure),
        Content.assemble(("proof  ", "$foreground-muted"), condition.proof),
    ]
    if condition.needs:
        lines.append(Content.assemble(("needs  ", "$warning"), condition.needs))
    return Content("\n").join(lines)


def _worded(line: str) -> str:
    """The engine's result in a few words, any other line as it is."""
    try:
        result = json.loads(line)
    except ValueError:
        return clean(line)
    if not isinstance(result, dict) or "output_tokens_per_s" not in result:
        return clean(line)
    parts = [f"{format_count(round(result['output_tokens_per_s'], 1))} tokens/s in {result.get('seconds', 0):.2f} s"]
    if result.get("peak_memory_bytes"):
        parts.append(f"peak memory {format_bytes(result['peak_memory_bytes'])}")
    counters = ", ".join(f"{name} {value}" for name, value in (result.get("counters") or {}).items() if value)
    return f"result: {', '.join(parts)}\n{counters}"
