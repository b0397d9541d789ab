"""Frames below the message of a failure: pasted in another order, or a log shown with its newest line first."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.readers.text.python_frames import ENDS_TRACEBACK, TRACEBACK_CLUE, Frame, FrameTrail, Place, judged

_MOST_GAP_LINES = 3


class FramesBelow:
    """What follows one message that had no frames above it."""

    def __init__(self) -> None:
        self._trail = FrameTrail()
        self._gap = 0
        self._first_code = ""
        self._is_newest_first = False
        self.is_open = True

    def take(self, number: int, text: str) -> None:
        """Look at the next line; closes where no frame comes for some lines, or where a traceback ends."""
        if TRACEBACK_CLUE in text:
            self._is_newest_first = bool(self._trail.frames)
            self.is_open = not self._is_newest_first
        elif self._trail.take(number, text):
            self._gap = 0
        elif self._trail.frames and ENDS_TRACEBACK.search(text[:400]):
            self._trail.frames.clear()
            self.is_open = False
        else:
            self._first_code = self._first_code if self._trail.frames else text
            self._gap += 1
            self.is_open = self._gap < _MOST_GAP_LINES

    def place(self) -> Place:
        """What the frames say; nothing where there were none, or where they end in an error of their own."""
        frames = tuple(self._trail.frames)
        if self._is_newest_first:
            frames = tuple(_turned(frames, self._first_code))
        return judged(frames) if frames else Place()


def _turned(frames: tuple[Frame, ...], first_code: str) -> Iterator[Frame]:
    """Outermost first; the source line of a frame stood above it, below the frame that it calls."""
    codes = (first_code.strip()[:200], *(frame.code for frame in frames))
    for frame, code in reversed(list(zip(frames, codes, strict=False))):
        yield Frame(frame.file, frame.line, frame.function, code)
