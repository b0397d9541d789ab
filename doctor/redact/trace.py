r"""PyTorch profiler traces: texts are rewritten where they stand, everything else passes character by character.

The file is not parsed: numbers keep their digits, a cut file stays as useful as it was,
and memory does not grow with the file. Values under keys that name a host, a user, an environment or a command line are
overwritten with everything below them; `process_name` keeps the base name of the executable; every other text loses the
folders of its paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from doctor.formats.private_paths import executable_name
from doctor.redact.masking import Hide, hide_all, hide_folders

_PIECE_BYTES = 1 << 20
_MOST_TOKEN_BYTES = 64 << 20
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(rb'(?s:"(?:[^"\\]|\\.)*")|[{}\[\],]')
_KEYS = (
    rb"host_?name|host|node_?name|user_?name|user|login|env|environ|environment|env_vars|command|command_line|cmd|"
    rb"cmdline|argv|cwd|working_dir(?:ectory)?|home"
)
_INTERESTING = re.compile(
    rb'(?s:(?P<private>"(?i:' + _KEYS + rb')"\s*:\s*)'
    rb'|(?P<process>"process_name"[^{}]{0,400}?\{\s*"name"\s*:\s*)'
    rb'|(?P<path>"[^"\\/]*(?:/|\\.)(?:[^"\\]|\\.)*"))'
)
"""Starts only at the first character of a text: none of the alternatives runs over the quote that ends one."""
_WHOLE_TEXT = re.compile(rb"(?s:" + _TEXT + rb")")


def redact_trace(source: BinaryIO, target: BinaryIO) -> None:
    """Copy a trace without anything private."""
    state = _State()
    for piece in _pieces(source):
        target.write(state.redact(piece))


class _State:
    """What is open at the end of a piece: the depth inside a private object or list, 0 outside of any."""

    def __init__(self) -> None:
        self._depth = 0

    def redact(self, piece: bytes) -> bytes:
        """One piece with its texts treated."""
        out: list[bytes] = []
        position = 0
        while position < len(piece):
            if self._depth:
                position = self._hide_inside(piece, position, out)
                continue
            match = _INTERESTING.search(piece, position)
            if match is None:
                out.append(piece[position:])
                break
            out.append(piece[position : match.start()])
            position = self._treat(match, piece, out)
        return b"".join(out)

    def _treat(self, match: re.Match[bytes], piece: bytes, out: list[bytes]) -> int:
        if match["path"] is not None:
            out.append(_rewritten(match[0], hide_folders))
            return match.end()
        out.append(match[0])
        hide = hide_all if match["private"] is not None else _executable
        value = _WHOLE_TEXT.match(piece, match.end())
        if value is not None:
            out.append(_rewritten(value[0], hide))
            return value.end()
        if match["private"] is not None and piece[match.end() : match.end() + 1] in {b"{", b"["}:
            out.append(piece[match.end() : match.end() + 1])
            self._depth = 1
            return match.end() + 1
        return match.end()

    def _hide_inside(self, piece: bytes, position: int, out: list[bytes]) -> int:
        for match in _TOKEN.finditer(piece, position):
            out.append(piece[position : match.start()])
            position = match.end()
            token = match[0]
            self._depth += (token in {b"{", b"["}) - (token in {b"}", b"]"})
            out.append(_rewritten(token, hide_all) if token.startswith(b'"') else token)
            if not self._depth:
                return position
        out.append(piece[position:])
        return len(piece)


def _pieces(source: BinaryIO) -> Iterator[bytes]:
    """Bytes in portions that end outside of any text: after a line end, which no text holds, or after a bracket."""
    waiting = b""
    while data := source.read(_PIECE_BYTES):
        waiting += data
        cut = waiting.rfind(b"\n") + 1 or _last_bracket(waiting)
        if not cut and len(waiting) > _MOST_TOKEN_BYTES:  # no text is that long: the file is damaged here
            cut = len(waiting)
        if cut:
            yield waiting[:cut]
            waiting = waiting[cut:]
    if waiting:
        yield _without_open_text(waiting)


def _last_bracket(data: bytes) -> int:
    cut = 0
    for match in _TOKEN.finditer(data):
        if not match[0].startswith(b'"'):
            cut = match.end()
    return cut


def _without_open_text(data: bytes) -> bytes:
    """The last bytes of a cut file, whose last text may lack its end."""
    end = 0
    for match in _TOKEN.finditer(data):
        end = match.end()
    rest = data[end:]
    return data[:end] + (hide_all(rest) if b'"' in rest else rest)


def _executable(text: bytes) -> bytes:
    return (executable_name(text.decode("utf-8", "replace")) or "").encode()


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
