"""What the devices of this machine say now, through NVML: who holds memory, clocks, what holds them back."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.types import CSSPathType
from textual.widgets import Static

from doctor.errors import DoctorError
from doctor.tui.screens.base import DoctorScreen

if TYPE_CHECKING:
    from doctor.vitals.nvml import Nvml
    from doctor.vitals.reading import Reading

_SECONDS_BETWEEN_LOOKS = 1.0


class VitalsScreen(DoctorScreen):
    """Looks once a second while it is shown; needs no evidence."""

    MODE = "vitals"
    NEEDS_CASE = False
    CSS_PATH: ClassVar[CSSPathType | None] = ["base.tcss", "vitals.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "pause", "Pause")]

    def __init__(self) -> None:
        self._open = ExitStack()
        self._nvml: Nvml | None = None
        self._why_none = ""
        self._is_paused = False
        self._is_looking = False
        super().__init__()

    def compose_body(self) -> ComposeResult:
        """One page."""
        with VerticalScroll():
            yield Static("Asking the driver ...", id="why")
            yield Static(id="page")

    def on_mount(self) -> None:
        """Begin to look."""
        super().on_mount()
        self.start(self._begin, "begin")

    def on_unmount(self) -> None:
        """Let the driver go."""
        self._open.close()

    async def _begin(self) -> None:
        try:
            self._nvml = await asyncio.to_thread(self._connect)
        except DoctorError as error:
            self._why_none = error.message
        why = self.query_one("#why", Static)
        why.display = bool(self._why_none)
        why.update(Content.styled(f"No device to ask: {self._why_none}", "$warning"))
        await self._look()
        self.set_interval(_SECONDS_BETWEEN_LOOKS, self._look)

    def _connect(self) -> Nvml:
        from doctor.vitals.nvml import Nvml  # noqa: PLC0415 - brings the driver's binding

        return self._open.enter_context(Nvml())

    async def _look(self) -> None:
        if self._is_paused or self._is_looking or not self.is_current:
            return
        self._is_looking = True
        try:
            reading = await asyncio.to_thread(_look, self._nvml)
        finally:
            self._is_looking = False
        self._show(reading)

    def _show(self, reading: Reading) -> None:
        from doctor.reports.vitals_page import vitals_view  # noqa: PLC0415 - needed here alone

        self.query_one("#page", Static).update(vitals_view(reading))

    def action_pause(self) -> None:
        """Stop looking, or go on."""
        self._is_paused = not self._is_paused
        self.notify("paused" if self._is_paused else "looking again")


def _look(nvml: Nvml | None) -> Reading:
    from doctor.vitals.look import look  # noqa: PLC0415 - needed here alone

    return look(nvml)
