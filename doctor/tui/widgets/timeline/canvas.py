"""The time-line itself: keeps what is looked at, asks for a picture when that changes, paints it.

Key presses never wait: they move the view, and of several that come while a picture is on its way only the last asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import Worker

from doctor.case.timeline.drawing import Item, Lane
from doctor.case.timeline.items import Work
from doctor.case.timeline.picture import Cursor, Picture, picture
from doctor.case.timeline.places import item_after, item_before
from doctor.case.timeline.tracks import Track
from doctor.case.timeline.view import View
from doctor.errors import DoctorError
from doctor.tui.case_desk import CaseDesk
from doctor.tui.widgets.timeline.painting import Mark, figure
from doctor.tui.widgets.timeline.rows import Row, placed
from doctor.tui.widgets.timeline.scene import HEAD_LINES, Look, Spot, scene

_ZOOM = 2.0
_PAN = 0.5
_WHEEL_ZOOM = 1.4
_WHEEL_PAN = 0.1
_ITEM_SHARE = 0.3
_READABLE_CELLS = 12
_PLACE_SHARE = 0.5


class TimelineCanvas(Widget, can_focus=True):
    """Lanes in cells, below an axis and a row with the places of the findings."""

    DEFAULT_CSS = """
    TimelineCanvas { height: 1fr; background: $background; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign,w", "zoom(1)", "Zoom in", key_display="+"),
        Binding("minus,s", "zoom(-1)", "Zoom out", key_display="-"),
        Binding("left", "move(-1)", "Cursor left", show=False),
        Binding("right", "move(1)", "Cursor right", show=False),
        Binding("a,shift+left", "pan(-1)", "Earlier", show=False),
        Binding("d,shift+right", "pan(1)", "Later", show=False),
        Binding("up", "lane(-1)", "Lane above", show=False),
        Binding("down", "lane(1)", "Lane below", show=False),
        Binding("enter", "fit", "Fit item"),
        Binding("n", "neighbour(1)", "Next"),
        Binding("p", "neighbour(-1)", "Previous", show=False),
        Binding("0,home", "whole", "All", key_display="0"),
    ]

    class Looked(Message):
        """Another picture is painted: what is under the cursor, and how wide a cell is."""

        def __init__(self, shown: Picture, cursor_ns: int, lane: Lane | None, tracks: Sequence[Track]) -> None:
            self.view = shown.drawing.view
            self.facts = shown.selected
            self.silence_ns = shown.silence_ns
            self.cursor_ns = cursor_ns
            self.lane = lane
            seen = {cell.work for cells in shown.drawing.cells.values() for cell in cells}
            self.works = tuple(sorted(seen - {Work.RANGE, Work.STEP}))
            self.figures = tuple(_figure(track, shown, cursor_ns) for track in tracks)
            super().__init__()

    def __init__(self) -> None:
        self._case: CaseDesk | None = None
        self._extent = (0, 1)
        self._origin_ns = 0
        self._lanes: tuple[Lane, ...] = ()
        self._tracks: tuple[Track, ...] = ()
        self._marks: tuple[Mark, ...] = ()
        self._view = View(0, 1, 1)
        self._cursor_ns = 0
        self._chosen = 0
        self._item: Item | None = None
        self._first = 0
        self._picture: Picture | None = None
        self._rows: tuple[Row, ...] = ()
        self._strips: list[Strip] = []
        self._asked = 0
        self._answered = 0
        self._drag: tuple[int, View] | None = None
        super().__init__()

    # What is looked at ------------------------------------------------------------------------------------------

    def open(self, case: CaseDesk, extent: tuple[int, int], lanes: Sequence[Lane], tracks: Sequence[Track]) -> None:
        """Show another case from its first event to its last."""
        self._case, self._extent, self._origin_ns = case, extent, extent[0]
        self._lanes, self._tracks, self._marks = tuple(lanes), tuple(tracks), ()
        self._chosen = next((place for place, lane in enumerate(lanes) if lane.kind == "stream"), 0)
        self._first, self._picture = 0, None
        self._look(View(extent[0], extent[1] - extent[0], self.cells), (extent[0] + extent[1]) // 2)

    def mark(self, marks: Sequence[Mark], window: tuple[int, int] | None) -> None:
        """Show the places of findings; times are counted from the start of the window from now on."""
        self._marks = tuple(marks)
        if window is not None:
            self._origin_ns = window[0]
        self.paint()

    def show(self, start_ns: int, end_ns: int, device_id: int | None, stream_id: int | None) -> None:
        """Bring a stretch of time into the middle, and a stream under the cursor where one is named."""
        named = (
            place
            for place, lane in enumerate(self._lanes)
            if lane.kind == "stream" and lane.device_id == device_id and stream_id in {None, lane.stream_id}
        )
        self._chosen = next(named, self._chosen)
        self._look(self._view.around(start_ns, end_ns, _PLACE_SHARE), (start_ns + end_ns) // 2)

    def show_span(self, start_ns: int, end_ns: int) -> None:
        """Fill the screen with a stretch of time."""
        self._look(self._view.around(start_ns, end_ns, 1.0), self._cursor_ns)

    @property
    def cells(self) -> int:
        """Columns that show time."""
        return max(self.size.width - self.label_width, 1)

    @property
    def label_width(self) -> int:
        """Columns of the labels."""
        return 14 if self.size.width < 120 else 20

    @property
    def origin_ns(self) -> int:
        """What the axis counts from."""
        return self._origin_ns

    @property
    def cursor_ns(self) -> int:
        """The time that the cursor is on."""
        return self._cursor_ns

    @property
    def view(self) -> View:
        """What is looked at, which may still be on its way."""
        return self._view

    @property
    def shows_selected_by_name(self) -> bool:
        """True where the box of the item under the cursor has room for a name."""
        selected = None if self._picture is None else self._picture.selected
        if selected is None:
            return False
        length_ns = selected.item.end_ns - selected.item.start_ns
        return length_ns >= _READABLE_CELLS * self._view.cell_ns

    @property
    def answered(self) -> int:
        """How many pictures have been painted."""
        return self._answered

    @property
    def is_current(self) -> bool:
        """True where the screen shows what was asked for last."""
        return self._asked == self._answered

    def _look(self, view: View, cursor_ns: int, item: Item | None = None) -> None:
        self._view = view.inside(*self._extent)
        self._item = item
        self._cursor_ns = min(max(cursor_ns, self._view.start_ns), self._view.end_ns - 1)
        self._ask()

    # Asking -----------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        if self._case is None or self.size.height == 0:
            return
        was_current = self.is_current
        self._asked += 1
        if was_current:
            self._asking: Worker[None] = self.run_worker(partial(self._answer, self._case), group="picture")

    async def _answer(self, case: CaseDesk) -> None:
        while not self.is_current:
            number = self._asked
            self._keep_chosen_in_sight()
            lane = self._chosen_lane
            shown = [row.lane.lane_id for row in self._rows if row.lane is not None]
            cursor = None if lane is None else Cursor(lane.lane_id, self._cursor_ns, self._item)
            try:
                answer = await case.ask_timeline(picture, self._view, shown, cursor)
            except DoctorError as error:
                self.notify(error.message, severity="error", markup=False)
                self._answered = self._asked
                return
            self._answered = number
            if case is self._case:
                self._picture = answer
                self.paint()
                self.post_message(self.Looked(answer, self._cursor_ns, lane, self._tracks))

    @property
    def _chosen_lane(self) -> Lane | None:
        return self._lanes[self._chosen] if self._chosen < len(self._lanes) else None

    def _keep_chosen_in_sight(self) -> None:
        lines = max(self.size.height - HEAD_LINES, 1)
        self._first = min(self._first, self._chosen)
        self._rows = placed(self._lanes, self._tracks, self._first, lines)
        while self._chosen >= self._first + len(self._rows) and self._rows:
            self._first += 1
            self._rows = placed(self._lanes, self._tracks, self._first, lines)

    # Painting ---------------------------------------------------------------------------------------------------

    def paint(self) -> None:
        """Paint the last picture, in the colours of the theme."""
        if self._picture is None:
            return
        look = Look(
            base=Style(color=self.styles.color.hex, bgcolor=self.styles.background.hex),
            is_dark=self.app.current_theme.dark,
            label_width=self.label_width,
            origin_ns=self._origin_ns,
        )
        self._strips = scene(self._picture, self._rows, self._marks, Spot(self._chosen_lane, self._cursor_ns), look)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the screen, as painted last."""
        if y < len(self._strips):
            return self._strips[y].adjust_cell_length(self.size.width, self.rich_style)
        return Strip.blank(self.size.width, self.rich_style)

    # Keys -------------------------------------------------------------------------------------------------------

    def action_zoom(self, direction: int) -> None:
        """Enlarge or shrink around the cursor; where nothing runs there, around the work at the end of that silence.

        Enlarging takes the cursor to that work, which is then told in words.
        """
        middle_ns = self._middle_of_zoom
        cursor_ns = middle_ns if direction > 0 else self._cursor_ns
        self._look(self._view.zoomed(_ZOOM**direction, middle_ns), cursor_ns, self._item)

    @property
    def _middle_of_zoom(self) -> int:
        """The cursor, or the work nearest to it that is in sight: zooming into a gap would lose all work."""
        before, after = (None, None) if self._picture is None else self._picture.silence_ns
        if (before or self._cursor_ns) > self._cursor_ns or (after or self._cursor_ns) < self._cursor_ns:
            return self._cursor_ns  # the picture is of where the cursor was before
        here = self._view.cell_of(self._cursor_ns)
        known = (after, None if before is None else before - 1)
        ends = [end for end in known if end is not None and 0 <= self._view.cell_of(end) < self._view.cells]
        return min(ends, key=lambda end: abs(self._view.cell_of(end) - here), default=self._cursor_ns)

    def action_pan(self, direction: int) -> None:
        """Move by half a screen; the cursor keeps its place on the screen."""
        before = self._view
        moved = before.panned(_PAN * direction).inside(*self._extent)
        self._look(moved, self._cursor_ns + moved.start_ns - before.start_ns)

    def action_move(self, cells: int) -> None:
        """Move the cursor by cells; at the edge the view follows."""
        cell = self._view.cell_of(self._cursor_ns) + cells
        time_ns = self._view.time_of(cell + 0.5)
        view = self._view
        if not 0 <= cell < view.cells:
            view = view.panned(_PAN * (1 if cells > 0 else -1))
        self._look(view, time_ns)

    def action_lane(self, direction: int) -> None:
        """Choose the lane above or below."""
        self._chosen = min(max(self._chosen + direction, 0), max(len(self._lanes) - 1, 0))
        self._look(self._view, self._cursor_ns)

    def action_whole(self) -> None:
        """Show the whole recording."""
        self._look(View(self._extent[0], self._extent[1] - self._extent[0], self.cells), self._cursor_ns)

    def action_fit(self) -> None:
        """Enlarge until the item under the cursor can be read."""
        selected = None if self._picture is None else self._picture.selected
        if selected is None:
            self.notify("There is no work under the cursor")
            return
        item = selected.item
        view = self._view.around(item.start_ns, item.end_ns, _ITEM_SHARE)
        self._look(view, (item.start_ns + item.end_ns) // 2, item)

    async def action_neighbour(self, direction: int) -> None:
        """Move the cursor to the next or the previous item of the lane."""
        lane = self._chosen_lane
        if self._case is None or lane is None:
            return
        selected = None if self._picture is None else self._picture.selected
        from_ns = self._cursor_ns if selected is None else selected.item.start_ns
        query = item_after if direction > 0 else item_before
        try:
            item = await self._case.ask_timeline(query, lane.lane_id, from_ns)
        except DoctorError as error:
            self.notify(error.message, severity="error", markup=False)
            return
        if item is None:
            self.notify("There is no further item in this lane")
            return
        self.go_to(item)

    def go_to(self, item: Item) -> None:
        """Put the cursor on an item; the view moves only where it does not show it."""
        self._chosen = next(
            (place for place, lane in enumerate(self._lanes) if lane.lane_id == item.lane_id), self._chosen
        )
        view, time_ns = self._view, (item.start_ns + item.end_ns) // 2
        if not 0 <= view.cell_of(time_ns) < view.cells:
            view = View(time_ns - view.length_ns // 2, view.length_ns, view.cells)
        self._look(view, time_ns, item)

    # Mouse ------------------------------------------------------------------------------------------------------

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Choose what is under the pointer, and begin to drag."""
        if event.x < self.label_width and event.y < HEAD_LINES:
            return
        row = next((row for row in self._rows if row.top <= event.y - HEAD_LINES < row.top + row.height), None)
        if row is not None and row.lane is not None:
            self._chosen = self._lanes.index(row.lane)
        self._look(self._view, self._time_at(event.x))
        self._drag = (event.x, self._view)
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag the view along."""
        if self._drag is not None and event.x != self._drag[0]:
            start, view = self._drag
            self._look(view.panned((start - event.x) / view.cells), self._cursor_ns)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """End dragging."""
        self._drag = None
        self.release_mouse()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Zoom in at the pointer; with Shift or Ctrl move to earlier times."""
        self._wheel(event, 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Zoom out at the pointer; with Shift or Ctrl move to later times."""
        self._wheel(event, -1)

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        event.stop()
        if event.shift or event.ctrl:
            self._look(self._view.panned(-_WHEEL_PAN * direction), self._cursor_ns)
            return
        at_ns = self._time_at(event.x)
        self._look(self._view.zoomed(_WHEEL_ZOOM**direction, at_ns), at_ns)

    def _time_at(self, x: int) -> int:
        return self._view.time_of(min(max(x - self.label_width, 0), self.cells - 1) + 0.5)

    def on_resize(self, event: events.Resize) -> None:
        """The same stretch of time in as many cells as there are now."""
        if self._case is not None:
            self._look(View(self._view.start_ns, self._view.length_ns, self.cells), self._cursor_ns, self._item)


def _figure(track: Track, shown: Picture, cursor_ns: int) -> str:
    """The value of a track under the cursor, with its name."""
    values = shown.tracks.get(track.track_id, ())
    cell = shown.drawing.view.cell_of(cursor_ns)
    value = values[cell] if 0 <= cell < len(values) else None
    return f"{track.label} {'unknown' if value is None else figure(value, track.unit)}"
