"""Events that are no valid JSON, as profilers and their plug-ins do write them.

Seen in the wild: NaN and infinities as bare words, bytes that are not UTF-8, control characters inside texts, Windows
paths with single backslashes. What cannot be mended is skipped and counted by the caller.
"""

from __future__ import annotations

import json
import re

import msgspec

from doctor.formats.json_escapes import with_whole_characters
from doctor.formats.kineto.events import EVENTS, TraceEvent

_WORD = rb"-?\b(?:NaN|nan|Infinity|infinity|INF|Inf|inf)\b"
_BARE_WORD = re.compile(rb'("(?:[^"\\]|\\.)*")|' + _WORD, re.DOTALL)
_MAY_HOLD_WORD = re.compile(rb"[:\[,]\s*" + _WORD)
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrtu])')


def mended(text: bytes) -> bytes:
    """The text with bare words turned into null, and what is no character replaced; itself where it has none."""
    text = with_whole_characters(text)
    if _MAY_HOLD_WORD.search(text):
        text = _BARE_WORD.sub(lambda found: found[1] or b"null", text)
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
    return text


def decode_array(array: bytes) -> list[TraceEvent] | None:
    """Events of a JSON array, mended if need be; None where it stays unreadable."""
    for text in (array, mended(array)):
        try:
            return EVENTS.decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
    return None


def decode_leniently(text: bytes) -> TraceEvent | None:
    """One event with control characters, bad escapes or fields of the wrong shape; None where nothing helps.

    Zero bytes stand where a disk or a network lost data, and may hide any number of events: those are not mended.
    """
    if b"\x00" in text:
        return None
    try:
        # floats stay texts: a time of the epoch loses its nanoseconds otherwise
        value = json.loads(_BAD_ESCAPE.sub(rb"\\\\", mended(text)), strict=False, parse_float=str)
        return EVENTS.decode(json.dumps([_with_known_shape(value)]).encode())[0]
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None


def _with_known_shape(value: object) -> object:
    """An event whose `cat`, `ph` or `args` are of another type keeps the rest of its fields."""
    if not isinstance(value, dict):
        return value
    kept = {key: entry for key, entry in value.items() if key not in ("cat", "ph") or isinstance(entry, str)}
    if not isinstance(kept.get("args", {}), dict):
        del kept["args"]
    return kept
