r"""PyTorch profiler traces: texts are rewritten where they stand, everything else passes character by character.

The file is not parsed: numbers keep their digits, a cut file stays as useful as it was, and memory does not grow with
the file. What stays of a text is said in `trace_texts`; characters outside of texts that JSON has no use for go too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import BinaryIO

from doctor.redact.masking import Hide, hide_all
from doctor.redact.trace_texts import (
    ARGUMENT_KEYS,
    EVENT_KEYS,
    OPENED_KEYS,
    PUBLIC_KEY,
    TEXT_LISTS,
    structural_texts,
    treatment,
)

_PIECE_BYTES = 1 << 20
_MOST_TOKEN_BYTES = 64 << 20
_TEXT = rb'(?s:"(?:[^"\\]|\\.)*")'
_TEXTS = re.compile(_TEXT)
_TOKEN = re.compile(_TEXT + rb"|[{}\[\],\"]")

_MARK = b"\xef\xbb\xbf"
_LINE_ENDS = (b",\n", b"{\n", b"}\n", b"[\n", b"]\n")

_FILLING = rb"[\s\x00\d+.,:eE-]++|true|false|null|NaN|nan|Infinity|inf"
_NUMBER = rb'"[A-Za-z_][\w %./()-]{0,47}+"\s*+:\s*+(?:(?=[-\dtfnNI])|\[(?:[\s\d.,+eE-]++|\[[\s\d.,+eE-]*+\])*\])'
_NAME = rb'"name"\s*+:\s*+"[^"\\/]*+"'
_KERNEL = rb'"kernel"\s*+:\s*+"[^"\\/]*+"'
_ARGUMENTS = (
    rb'"args"\s*+:\s*+\{(?:' + rb"|".join((_FILLING, _NUMBER, *structural_texts(ARGUMENT_KEYS), _KERNEL)) + rb")*\}"
)
_AS_IT_IS = re.compile(
    rb"(?:"
    + rb"|".join(
        (
            _FILLING,
            rb"[{}\[\]]",
            _NAME,
            *structural_texts(EVENT_KEYS),
            _NUMBER,
            _ARGUMENTS,
            rb'"traceEvents"\s*+:',
        )
    )
    + rb")*"
)
"""Events without anything private, for as long as they go on: most of a trace never leaves the engine of `re`."""
_NEXT = re.compile(
    rb"(?s:(?P<filling>(?:" + _FILLING + rb")+)|(?P<key>" + _TEXT + rb")(?P<colon>\s*:\s*)|(?P<text>" + _TEXT + rb")"
    rb"|(?P<open>[{\[])|(?P<close>[}\]])|(?P<other>.))"
)


class OverlongTextError(Exception):
    """No event for so long that the file is no trace, or damaged here."""


def redact_trace(source: BinaryIO, target: BinaryIO) -> bool:
    """Copy a trace without anything private; False where the trace ends too early.

    Raises:
        OverlongTextError: the file is damaged.
    """
    copy = _Copy()
    for number, piece in enumerate(_pieces(source)):
        mark = _MARK if number == 0 and piece.startswith(_MARK) else b""
        target.write(mark + copy.take(piece.removeprefix(mark)))
    return copy.is_whole


class _Place(Enum):
    """Where in a trace a text stands."""

    TRACE = auto()
    """The trace itself and its events."""
    ARGUMENTS = auto()
    """The arguments of an event."""
    LIST = auto()
    """A list of texts under a known key."""
    PRIVATE = auto()
    """Below a key that is not known."""


@dataclass
class _Open:
    """An object or list that is open, and how many are inside it."""

    place: _Place
    key: bytes = b""
    depth: int = 0


class _Copy:
    """What is open at the end of a piece, from one piece to the next."""

    def __init__(self) -> None:
        self._open = [_Open(_Place.TRACE)]
        self._key: bytes | None = None
        self._num_private_keys = 0
        self._num_odd_keys = 0
        self._num_brackets = 0
        self._has_open_text = False

    @property
    def is_whole(self) -> bool:
        """All brackets are closed, and all texts."""
        return self._num_brackets == 0 and not self._has_open_text

    def take(self, piece: bytes) -> bytes:
        """One piece with its texts treated."""
        self._count(_TEXTS.sub(b"", piece))
        out: list[bytes] = []
        position = 0
        while position < len(piece):
            match = None
            if self._key is None and self._open[-1].place is _Place.TRACE:
                match = _AS_IT_IS.match(piece, position)
            if match is not None and match.end() > position:
                out.append(match[0])
            else:
                match = _NEXT.match(piece, position)
                assert match is not None  # it takes any character
                out.append(self._treated(match))
            position = match.end()
        return b"".join(out)

    def _count(self, without_texts: bytes) -> None:
        opened = without_texts.count(b"{") + without_texts.count(b"[")
        self._num_brackets += opened - without_texts.count(b"}") - without_texts.count(b"]")
        self._has_open_text |= b'"' in without_texts

    def _treated(self, match: re.Match[bytes]) -> bytes:
        kind, token = match.lastgroup, match[0]
        if kind == "colon":
            return self._opened_key(match["key"]) + match["colon"]
        if kind == "text":
            return self._text(token)
        if kind == "open":
            self._enter()
        elif kind == "close":
            self._leave()
        elif kind == "other":
            return b"x"
        elif self._open[-1].place is not _Place.LIST and token.strip():
            self._key = None
        return token

    def _opened_key(self, token: bytes) -> bytes:
        self._key = _content(token)
        if self._open[-1].place is _Place.PRIVATE:
            self._num_private_keys += 1
            return b'"k%d"' % self._num_private_keys
        if PUBLIC_KEY.fullmatch(self._key):
            return token
        self._num_odd_keys += 1
        return b'"key_%d"' % self._num_odd_keys

    def _text(self, token: bytes) -> bytes:
        inside, key = self._open[-1], self._key
        self._key = None
        if inside.place is _Place.LIST:
            return _rewritten(token, treatment(inside.key))
        if key is None or inside.place is _Place.PRIVATE:
            return _rewritten(token, hide_all)
        return _rewritten(token, treatment(key, is_argument=inside.place is _Place.ARGUMENTS))

    def _enter(self) -> None:
        inside, key = self._open[-1], self._key
        self._key = None
        if key is None or inside.place is _Place.PRIVATE or (key in OPENED_KEYS and key != b"args"):
            inside.depth += 1
        elif key == b"args":
            self._open.append(_Open(_Place.ARGUMENTS))
        else:
            self._open.append(_Open(_Place.LIST if key in TEXT_LISTS else _Place.PRIVATE, key))

    def _leave(self) -> None:
        if self._open[-1].depth:
            self._open[-1].depth -= 1
        elif len(self._open) > 1:
            self._open.pop()
        self._key = None


def _pieces(source: BinaryIO) -> Iterator[bytes]:
    """Bytes in portions that end outside of any text and behind no key: after a line, or after a bracket."""
    waiting = b""
    while data := source.read(max(_PIECE_BYTES, len(waiting))):
        waiting += data
        cut = max(waiting.rfind(end) for end in _LINE_ENDS) + 2
        cut = cut if cut > 1 else _last_bracket(waiting)
        if not cut and len(waiting) > _MOST_TOKEN_BYTES:
            raise OverlongTextError("64 MiB of it hold nothing that a trace is made of")
        if cut:
            yield waiting[:cut]
            waiting = waiting[cut:]
    if waiting:
        yield waiting


def _last_bracket(data: bytes) -> int:
    cut = 0
    for match in _TOKEN.finditer(data):
        if match[0] == b'"':  # its end is still to come
            break
        if not match[0].startswith(b'"'):
            cut = match.end()
    return cut


def _content(token: bytes) -> bytes:
    """What a JSON text says."""
    if b"\\" not in token:
        return token[1:-1]
    try:
        text: str = json.loads(token, strict=False)
    except ValueError:
        return b""
    return text.encode("utf-8", "surrogatepass")


def _rewritten(token: bytes, hide: Hide) -> bytes:
    """A JSON text with its content treated; left as it stands where nothing changes."""
    if b"\\" not in token:
        return b'"' + hide(token[1:-1]) + b'"'
    try:
        text = json.loads(token, strict=False).encode("utf-8", "surrogatepass")
    except (ValueError, UnicodeError):
        return b'"' + hide_all(token[1:-1].replace(b"\\", b"x")) + b'"'
    hidden = hide(text)
    return token if hidden == text else json.dumps(hidden.decode("utf-8", "replace")).encode()
