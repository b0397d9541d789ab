"""Escapes of JSON and YAML that stand for no character: one half of a pair of surrogates, which no text can hold."""

from __future__ import annotations

import re

_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"(\\\\|" + _HIGH + _LOW + rb")|" + _HIGH + rb"|" + _LOW)


def with_whole_characters(text: bytes) -> bytes:
    """The text with the replacement character for each half of a pair; itself where it has none."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda found: found[1] or rb"\ufffd", text)
