"""What screens tell the application."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass(frozen=True)
class Place:
    """A stretch of the recording to look at.

    Attributes:
        start_ns: on the case's clock; None where only `range_name` tells.
        end_ns: its end.
        label: what is there, in a few words.
        range_name: annotation range that the place is named by.
        device_id: device, where it is on one.
        stream_id: stream, where it is on one.
    """

    start_ns: int | None
    end_ns: int | None
    label: str
    range_name: str | None = None
    device_id: int | None = None
    stream_id: int | None = None


class ShowPlace(Message):
    """Go to the time-line and show a place; going back leads to the screen that asked."""

    def __init__(self, place: Place) -> None:
        self.place = place
        super().__init__()


class OpenEvidence(Message):
    """Load and diagnose other evidence."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        super().__init__()


class CopyText(Message):
    """Put a text on the clipboard; `what` is told to the person."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        super().__init__()
