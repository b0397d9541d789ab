"""Texts out of bytes, at equal length: no length, count or offset around them changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from doctor.formats.nsys_report import wire
from doctor.redact.secrets import MASK

Hide = Callable[[bytes], bytes]
"""Gives a text of the same length without what is private in it."""

_FOLDERS = re.compile(rb"(?<![\w.:/\\-])(?:[A-Za-z]:)?(?:[\\/][^\s'\"\\/:;,()<>|\x00]+)+(?=[\\/])")
PATH = re.compile(rb"(?:[A-Za-z]:)?[\\/][\w .+@~#%,()\[\]{}\\/-]{1,4096}")
"""One absolute path and nothing else."""
SYMBOL = re.compile(rb"\[?[A-Za-z_~][\w:<>~*&, ()\[\].@$+-]*")
"""A function or a module without folder, as a recorder resolves them."""
DEVICE = re.compile(rb"(?:NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|AMD|Radeon|Instinct|Intel)\b[\w ()./+-]{0,60}")
"""Name of a GPU or CPU."""
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]{3,}")
_MOST_DEPTH = 40


def hide_all(text: bytes) -> bytes:
    """Every character but line ends."""
    return re.sub(rb"[^\n]", MASK, text)


def hide_folders(text: bytes) -> bytes:
    """Folders of absolute paths; the last part of each stays."""
    return _FOLDERS.sub(lambda match: re.sub(rb"[^\\/]", MASK, match[0]), text)


@dataclass(frozen=True)
class TextRules:
    """How the texts of one message are treated.

    Attributes:
        hide: applied to every text that no other rule names.
        by_path: paths of field numbers with a treatment of their own; it holds for everything below them.
    """

    hide: Hide
    by_path: dict[tuple[int, ...], Hide]


def hide_texts(message: bytes, rules: TextRules) -> bytes:
    """The message with its texts treated; numbers and structure are untouched.

    A field is a text where all its bytes are printable; what is not and reads as a message is looked into.
    """
    out = bytearray(message)
    _walk(out, 0, len(out), (), rules)
    return bytes(out)


def _walk(data: bytearray, start: int, end: int, path: tuple[int, ...], rules: TextRules) -> None:
    for span in list(wire.read_spans(data, start, end)):
        if span.wire_type != wire.BYTES or span.start == span.end:
            continue
        here = (*path, span.number)
        hide = _rule(here, rules)
        raw = bytes(data[span.start : span.end])
        if _TEXT.fullmatch(raw) or (here in rules.by_path and not _is_message(raw)):
            data[span.start : span.end] = hide(raw)
        elif len(path) < _MOST_DEPTH and _is_message(raw):
            _walk(data, span.start, span.end, here, rules)
        else:
            data[span.start : span.end] = _TEXT.sub(lambda match, hide=hide: hide(match[0]), raw)  # type: ignore[misc]


def _rule(path: tuple[int, ...], rules: TextRules) -> Hide:
    for depth in range(len(path), 0, -1):
        hide = rules.by_path.get(path[:depth])
        if hide is not None:
            return hide
    return rules.hide


def _is_message(raw: bytes) -> bool:
    try:
        return sum(1 for _ in wire.read_spans(raw)) > 0
    except wire.WireError:
        return False
