"""Memory: what the devices hold over time, copies by kind, allocation calls in the recording."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.types import CSSPathType
from textual.widgets import DataTable, Static

from doctor.case.memory_queries import (
    AllocationCall,
    CopyGroup,
    DeviceHolder,
    DeviceMemory,
    MemoryFailure,
    allocation_calls,
    copy_groups,
    device_holders,
    device_memories,
    memory_failures,
)
from doctor.case.timeline.drawing import extent
from doctor.case.timeline.tracks import Track, track_cells, tracks
from doctor.case.timeline.view import View
from doctor.errors import DoctorError
from doctor.reports.wording import clean
from doctor.tui.case_desk import CaseDesk
from doctor.tui.looks import colour
from doctor.tui.screens.base import DoctorScreen
from doctor.units import format_bytes, format_count, format_ns, format_rate

_BLOCKS = " ▁▂▃▄▅▆▇█"
_LINES = 3
_LABEL = 20
_BAR = 30


class MemoryScreen(DoctorScreen):
    """Figures over time above two tables; failures first, where there are any."""

    MODE = "memory"
    CSS_PATH: ClassVar[CSSPathType | None] = ["base.tcss", "memory.tcss"]

    def compose_body(self) -> ComposeResult:
        """Failures, figures, copies, calls."""
        with VerticalScroll():
            yield Static(id="failures")
            yield Static(id="devices", classes="caption")
            yield Static(id="figures")
            yield Static("Copies", classes="heading", id="copies-heading")
            yield DataTable(id="copies", cursor_type="row")
            yield Static("Allocation calls", classes="heading", id="calls-heading")
            yield DataTable(id="calls", cursor_type="row")

    def case_opened(self, case: CaseDesk) -> None:
        """Ask for everything."""
        self.call_after_refresh(self._ask, case)

    def on_resize(self) -> None:
        """Figures over time fill the width."""
        if self.case is not None:
            self.call_after_refresh(self._ask, self.case)

    def _ask(self, case: CaseDesk) -> None:
        self.start(partial(self._load, case), "memory")

    async def _load(self, case: CaseDesk) -> None:
        try:
            self._show_failures(await case.ask(memory_failures))
            self._show_devices(await case.ask(device_memories), await case.ask(device_holders))
            await self._show_figures(case)
            self._show_copies(await case.ask(copy_groups))
            self._show_calls(await case.ask(allocation_calls))
        except DoctorError as error:
            self.notify(error.message, severity="error", markup=False)

    def _show_failures(self, failures: Sequence[MemoryFailure]) -> None:
        shown = self.query_one("#failures", Static)
        shown.display = bool(failures)
        shown.update(Content("\n").join(_failure(failure) for failure in failures))

    def _show_devices(self, devices: Sequence[DeviceMemory], holders: Sequence[DeviceHolder]) -> None:
        lines = [
            f"GPU {device.device_id}: {device.name}"
            + (f", {format_bytes(device.memory_bytes)} of memory" if device.memory_bytes is not None else "")
            for device in devices
        ]
        lines += [
            f"GPU {holder.device_id}: pid {holder.pid} {clean(holder.name)} held "
            + (format_bytes(holder.memory_bytes) if holder.memory_bytes is not None else "an unknown amount")
            for holder in holders
        ]
        self.query_one("#devices", Static).update("\n".join(lines) or "The evidence names no device.")

    async def _show_figures(self, case: CaseDesk) -> None:
        figures = self.query_one("#figures", Static)
        span, found = await case.ask(extent), await case.ask(tracks)
        if span is None or not found:
            figures.update(
                Content.styled(
                    "Memory over time was not recorded: use `nsys profile --cuda-memory-usage=true`, or "
                    "torch.profiler.profile(profile_memory=True).",
                    "$foreground-muted",
                )
            )
            return
        cells = max(self.size.width - _LABEL - 6, 10)
        values = await case.ask(track_cells, View(span[0], span[1] - span[0], cells))
        byte_tracks = [track for track in found if track.unit == "bytes"]
        figures.update(Content("\n").join(_figure(track, values.get(track.track_id, ())) for track in byte_tracks))

    def _show_copies(self, copies: Sequence[CopyGroup]) -> None:
        table: DataTable[Text | str] = self.query_one("#copies", DataTable)
        table.clear(columns=True)
        table.add_columns("direction", "from", "to", "count", "bytes", "time", "rate")
        red = colour(self.app, "error")
        none = "" if copies else ": none in this evidence"
        self.query_one("#copies-heading", Static).update(f"Copies{none}")
        for copy in copies:
            table.add_row(
                copy.direction,
                _place(copy.src_kind, red),
                _place(copy.dst_kind, red),
                format_count(copy.count),
                format_bytes(copy.size_bytes),
                format_ns(copy.total_ns),
                "" if copy.rate_bytes_per_s is None else format_rate(copy.rate_bytes_per_s),
            )

    def _show_calls(self, calls: Sequence[AllocationCall]) -> None:
        table: DataTable[str] = self.query_one("#calls", DataTable)
        table.clear(columns=True)
        table.add_columns("call", "count", "host time", "longest")
        none = "" if calls else ": none in this evidence"
        self.query_one("#calls-heading", Static).update(f"Allocation calls{none}")
        for call in calls:
            table.add_row(call.function, format_count(call.count), format_ns(call.total_ns), format_ns(call.longest_ns))


def _place(kind: str, slow_colour: str) -> Text | str:
    """A kind of memory; the slow one stands out."""
    return Text("pageable !", style=f"bold {slow_colour}") if kind == "pageable" else kind


def _figure(track: Track, values: Sequence[float | None]) -> Content:
    lines = []
    for row in reversed(range(_LINES)):
        label = {_LINES - 1: track.label, _LINES - 2: f"top {format_bytes(track.top)}"}.get(row, "")
        cells = "".join(_block(value, track.top, row) for value in values)
        lines.append(Content.assemble((f" {label:<{_LABEL}}", "$foreground-muted"), (cells, "$primary")))
    return Content("\n").join(lines)


def _block(value: float | None, top: float, row: int) -> str:
    filled = 0 if not value else max(1, round(value / top * _LINES * 8))
    return _BLOCKS[min(max(filled - row * 8, 0), 8)]


def _failure(failure: MemoryFailure) -> Content:
    """One allocation that failed: who held the device, as bars with words and figures."""
    lines = [
        Content.assemble(
            (" OUT OF MEMORY ", "bold $background on $error"),
            f"  GPU {failure.device_id if failure.device_id is not None else '?'}",
            f": asked for {format_bytes(failure.tried_bytes)}" if failure.tried_bytes is not None else "",
            f", {format_bytes(failure.free_bytes)} free" if failure.free_bytes is not None else "",
            f" of {format_bytes(failure.total_bytes)}" if failure.total_bytes is not None else "",
        )
    ]
    for part in failure.parts:
        share = part.size_bytes / failure.total_bytes if failure.total_bytes else 0.0
        bar = "█" * max(1, round(share * _BAR))
        lines.append(Content.assemble(f"  {part.holder:<28}{format_bytes(part.size_bytes):>10}  ", (bar, "$primary")))
    return Content("\n").join(lines)
