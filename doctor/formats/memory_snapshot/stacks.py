"""Stacks of a snapshot as one line of text each: function (file:line), innermost first, no folders."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

MOST_FRAMES = 12
MOST_NAME_CHARS = 100
_MOST_LISTED = 1000
"""Frames of a stack that are looked at; recursion makes no more than that in Python."""
_MOST_READ_CHARS = 2000
_ALLOCATOR = re.compile(
    r"torch::unwind|CapturedTraceback|gather_with_cpp|CachingAllocator|^c10::|empty_generic|empty_cuda"
)
_INTERPRETER = re.compile(r"^_?Py\w|^__libc|^_start$")
_PLUMBING = frozenset({"_call_impl", "_wrapped_call_impl"})
"""Two frames of torch/nn/modules/module.py before every module's own: they would fill half of a stack."""


class StackTexts:
    """Texts of stacks; a list of frames that many events share is read once. Frames must outlive this object."""

    def __init__(self) -> None:
        self._known: dict[int, str | None] = {}

    def text(self, frames: Any) -> str | None:
        """The text of a list of frames; None where there are none.

        Args:
            frames: dicts with `name`, `filename`, `line`; anything else is passed over.
        """
        if not isinstance(frames, list) or not frames:
            return None
        if id(frames) not in self._known:
            self._known[id(frames)] = _joined(frames)
        return self._known[id(frames)]


def _joined(frames: list[Any]) -> str | None:
    named = [frame for frame in frames[:_MOST_LISTED] if isinstance(frame, dict) and _word(frame, "name")]
    python = [frame for frame in named if _word(frame, "filename").endswith(".py")]
    python = [frame for frame in python if _word(frame, "name") not in _PLUMBING] or python
    chosen = python or list(islice(filter(_is_of_a_program, named), MOST_FRAMES))
    return " < ".join(_frame(frame) for frame in chosen[:MOST_FRAMES]) or None


def _is_of_a_program(frame: dict[str, Any]) -> bool:
    name = _word(frame, "name")
    return not _ALLOCATOR.search(name) and not _INTERPRETER.match(name)


def _word(frame: dict[str, Any], key: str) -> str:
    """A text of a frame, its end where it is very long: the end of a path is its file."""
    value = frame.get(key)
    return value[-_MOST_READ_CHARS:] if isinstance(value, str) else ""


def _frame(frame: dict[str, Any]) -> str:
    name = " ".join(_word(frame, "name").split())[:MOST_NAME_CHARS]
    base = _word(frame, "filename").replace("\\", "/").rpartition("/")[2][:MOST_NAME_CHARS]
    line = frame.get("line")
    if base in {"", "??"}:
        return name
    is_known = isinstance(line, int) and 0 < line < 2**31
    return f"{name} ({base}:{line})" if is_known else f"{name} ({base})"
