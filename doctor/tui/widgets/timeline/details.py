"""What is under the cursor, in words; and the legend of the shapes."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from doctor.case.timeline.places import ItemFacts
from doctor.reports.wording import clean
from doctor.tui.widgets.timeline.canvas import TimelineCanvas
from doctor.tui.widgets.timeline.glyphs import LOOKS
from doctor.tui.widgets.timeline.naming import item_name, lane_name, moment
from doctor.units import format_ns

_MUTED = "$foreground-muted"


class Details(Static):
    """Three lines about the selected item: name and length, when and what, who launched it."""

    DEFAULT_CSS = """
    Details { height: 4; padding: 0 1; background: $surface; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def show(self, looked: TimelineCanvas.Looked, origin_ns: int) -> None:
        """Describe what a picture has under the cursor."""
        if looked.facts is None:
            self.update(_silence(looked, origin_ns), layout=False)
            return
        self.update(_about(looked.facts, origin_ns), layout=False)


class Legend(Static):
    """How wide the view is, and what the shapes mean."""

    DEFAULT_CSS = """
    Legend { height: 1; padding: 0 1; color: $foreground-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def show(self, looked: TimelineCanvas.Looked, *, is_dark: bool) -> None:
        """Say how much time the view and a cell are, and what the shapes in it mean."""
        view = looked.view
        parts = [Content(f"view {format_ns(view.length_ns)}, a cell {format_ns(view.cell_ns)} ")]
        for work in looked.works:
            look = LOOKS[work]
            parts.append(Content.assemble((look.levels[-1], look.colour(is_dark=is_dark)), f" {look.word}"))
        self.update(Content(" ").join(parts), layout=False)


def _silence(looked: TimelineCanvas.Looked, origin_ns: int) -> Content:
    """How long the lane is silent around the cursor."""
    at = moment(looked.cursor_ns - origin_ns, looked.view.cell_ns)
    if looked.lane is None:  # figures alone
        return Content.assemble((f"{at} in", "bold"), f"\n{', '.join(looked.figures)}")
    where = f" on {lane_name(looked.lane).strip()}"
    before, after = looked.silence_ns
    if before is None or after is None:
        return Content.assemble(("Nothing runs here", "bold"), f"{where}, {at} into the window")
    length = after - before
    start = moment(before - origin_ns, max(length / 100, 1))
    return Content.assemble(
        (format_ns(length), "bold $warning"),
        "  ",
        ("Nothing runs here", "bold"),
        f"{where}\nfrom {start} into the window",
    )


def _about(facts: ItemFacts, origin_ns: int) -> Content:
    item = facts.item
    length = item.end_ns - item.start_ns
    name = clean(item.name) or item_name(item)
    lines = [Content.assemble((format_ns(length), "bold $success"), "  ", (item_name(item), "bold"))]
    at = moment(item.start_ns - origin_ns, max(length / 100, 1))
    about = ", ".join((f"starts {at} into the window", *(clean(fact) for fact in facts.facts)))
    lines.append(Content(about))
    if facts.launch is not None:
        before = format_ns(item.start_ns - facts.launch.start_ns)
        thread = "" if facts.launch.tid is None else f" on thread {facts.launch.tid}"
        lines.append(Content(f"launched by {clean(facts.launch.function)}{thread}, {before} before it ran"))
    if name != item_name(item):
        lines.append(Content.styled(name, _MUTED))
    return Content("\n").join(lines)
