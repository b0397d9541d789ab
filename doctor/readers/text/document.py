"""Any text: a log, a paste, standard input. Shows its lines to the scanners and passes on what they find.

Most lines of a long log are nobody's: they are told from the others by one automaton (RE2, through Arrow), sixteen at a
time, never as Python strings. Memory is bounded by a piece, whatever the text and however long a line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import UnknownEvidenceError
from doctor.readers.evidence_file import EvidenceFile, open_evidence
from doctor.readers.protocol import Progress, no_progress
from doctor.readers.text import new_scanners
from doctor.readers.text.scanner import BesideScanner, LedScanner, Scanner
from doctor.readers.text.wrapped import unwrapped

MOST_LINE_BYTES = 64 * 1024
RECOGNISE_BYTES = 256 * 2**20
"""How far into a text its first piece of evidence is looked for: a server may talk for hours before it dies."""

_SAMPLE_BYTES = 4096
_LEAST_CHARACTERS = 8
_MANY_LINES = 64
"""From here on one automaton for each scanner is cheaper than looking for each of its clues in each line."""
_GROUP_LINES = 16
_COLOUR = re.compile(rb"(?:\x1b|\^\[|\\x1b|\\u001b|\\033)\[[0-9;?]{0,32}[A-Za-z]")
_BARE_COLOUR = re.compile(rb"\[(?:0|0;0|(?:[01];)?[39][0-7]|(?:[01];)?38;5;\d{1,3})m(?!\])")
"""Web forms drop the escape character and leave the rest: `[0;36m(EngineCore pid=77)[0;0m`."""
_ESCAPES = (b"\x1b", b"^[[", b"\\x1b", b"\\u001b", b"\\033")
_RESETS = (b"[0m", b"[0;0m")
_ENTITIES = ((b"&gt;", b">"), (b"&lt;", b"<"), (b"&quot;", b'"'), (b"&#39;", b"'"), (b"&nbsp;", b" "), (b"&amp;", b"&"))
"""What a page's source has for characters, the ampersand last."""


class TextDocumentReader:
    """Evidence within a text, told by content; one source for each kind found."""

    kind = "engine-log"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell whether a text holds anything that a scanner takes.

        Args:
            path: an existing file.
            head: its first 64 KiB after decompression.
        """
        if not _is_text(_Utf8().take(head)):
            return False
        desk = _Desk(new_scanners())
        for _ in desk.read(_pieces(open_evidence(path), no_progress, RECOGNISE_BYTES)):
            return True
        return any(scanner.facts() is not None for scanner in desk.scanners if not isinstance(scanner, BesideScanner))

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield rows by kind, then one `SourceFacts` for each kind.

        Raises:
            UnknownEvidenceError: no scanner found anything.
        """
        file = open_evidence(path)
        desk = _Desk(new_scanners())
        yield from desk.read(_pieces(file, progress))
        found = [(scanner, facts) for scanner in desk.scanners if (facts := scanner.facts()) is not None]
        if all(isinstance(scanner, BesideScanner) for scanner, _ in found):
            raise UnknownEvidenceError(f"{path} is a text in which nothing is known as evidence")
        for scanner, facts in found:
            yield from scanner.drain()
            yield facts if file.cut_short is None else _cut(facts, file.cut_short)


class _Desk:
    """Shows each line to the scanners that want it."""

    def __init__(self, scanners: tuple[Scanner, ...]) -> None:
        self.scanners = scanners
        self._clues = [_any_of(scanner.clues) for scanner in scanners]
        self._any_clue = _any_of(tuple({clue for scanner in scanners for clue in scanner.clues}))
        self._led = [scanner for scanner in scanners if isinstance(scanner, LedScanner)]
        self._open: list[Scanner] = []
        self._number = 0

    def read(self, pieces: Iterable[bytes]) -> Iterator[TableBatch]:
        """Rows of each piece of whole lines that holds some."""
        for piece in pieces:
            if self._show(_Lines(piece)):
                for scanner in self.scanners:
                    yield from scanner.drain()

    def _show(self, lines: _Lines) -> bool:
        """Show the lines of a piece that somebody wants; True where there were any."""
        wanted = lines.places_of(self._any_clue)
        takers = self._takers(lines, wanted) if len(wanted) else []
        place, turn, is_shown = 0, 0, False
        while place < len(lines):
            if not self._open:
                if turn >= len(wanted):
                    break
                place = int(wanted[turn])
            chosen: tuple[Scanner, ...] = ()
            if turn < len(wanted) and place == wanted[turn]:
                chosen, turn = takers[turn], turn + 1
            text = lines.text(place)
            for led in self._led:
                if led in chosen and not led.is_open:
                    led.lead(partial(lines.before, place, led.lead_lines))
            for scanner in dict.fromkeys((*self._open, *chosen)):
                scanner.line(self._number + place + 1, text)
                is_shown = True
            self._open = [scanner for scanner in dict.fromkeys((*self._open, *chosen)) if scanner.is_open]
            place += 1
        self._number += len(lines)
        return is_shown

    def _takers(self, lines: _Lines, wanted: npt.NDArray[np.int64]) -> list[tuple[Scanner, ...]]:
        """For each wanted line the scanners with a clue in it."""
        if len(wanted) < _MANY_LINES:
            texts = [lines.text(int(place)) for place in wanted]
            return [
                tuple(scanner for scanner in self.scanners if any(clue in text for clue in scanner.clues))
                for text in texts
            ]
        holding = [lines.holding(clues, wanted) for clues in self._clues]
        return [
            tuple(scanner for scanner, holds in zip(self.scanners, row, strict=True) if holds)
            for row in zip(*holding, strict=True)
        ]


class _Lines:
    """The lines of a piece of text, where they lie."""

    def __init__(self, piece: bytes) -> None:
        self._piece = unwrapped(_plain(piece))
        ends = np.flatnonzero(np.frombuffer(self._piece, np.uint8) == ord("\n"))
        starts = np.concatenate(([0], ends + 1))
        if starts[-1] < len(self._piece):  # the last line of a text may lack its end
            starts = np.append(starts, len(self._piece))
        self._starts = starts.astype(np.int32)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def places_of(self, pattern: str) -> npt.NDArray[np.int64]:
        """Places of the lines that match: looked for in groups first, since each look costs more than its bytes."""
        firsts = np.arange(0, len(self), _GROUP_LINES)
        edges = np.append(self._starts[firsts], self._starts[-1]).astype(np.int32)
        groups = firsts[_matching(self._array(edges), pattern)]
        near = (groups[:, None] + np.arange(_GROUP_LINES)[None, :]).ravel()
        near = near[near < len(self)]
        return near[self.holding(pattern, near)] if len(near) else near

    def holding(self, pattern: str, places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of the lines at `places` match."""
        return _matching(self._array(self._starts).take(pa.array(places)), pattern)

    def _array(self, edges: npt.NDArray[np.int32]) -> pa.Array:
        return pa.Array.from_buffers(
            pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(self._piece)]
        )

    def before(self, place: int, count: int) -> list[str]:
        """The lines above `place` within this piece, nearest last."""
        return [self.text(above) for above in range(max(0, place - count), place)]

    def text(self, place: int) -> str:
        """One line, decoded, without its end; at most 64 KiB."""
        start, end = int(self._starts[place]), int(self._starts[place + 1])
        line = self._piece[start : min(end, start + MOST_LINE_BYTES)]
        return line.decode("utf-8", errors="replace").rstrip("\r\n")


def _plain(piece: bytes) -> bytes:
    """Without colours, and with characters in place of the entities of a page."""
    if any(escape in piece for escape in _ESCAPES):
        piece = _COLOUR.sub(b"", piece)
    if any(reset in piece for reset in _RESETS):
        piece = _BARE_COLOUR.sub(b"", piece)
    if b"&" in piece and b";" in piece:
        for entity, character in _ENTITIES:
            if entity in piece:
                piece = piece.replace(entity, character)
    return piece


def _matching(texts: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return found


def _any_of(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words))


def _pieces(file: EvidenceFile, progress: Progress, most_bytes: int | None = None) -> Iterator[bytes]:
    """Pieces of whole lines; a line without end is cut, so that memory stays bounded."""
    pending, done, text = b"", 0, _Utf8()
    for raw in file.chunks(progress):
        done += len(raw)
        chunk = text.take(raw)
        end = chunk.rfind(b"\n") + 1
        if end:
            yield pending + chunk[:end]
            pending = chunk[end:]
        elif len(pending) < MOST_LINE_BYTES:
            pending += chunk
        if most_bytes is not None and done >= most_bytes:
            break
    if pending:
        yield pending


class _Utf8:
    """A text as UTF-8 with ends of lines.

    A console of Windows writes UTF-16, an emptied log that goes on begins with zeros, and some programs end lines with
    a carriage return alone.
    """

    def __init__(self) -> None:
        self._has_begun = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._has_returns_only = False

    def take(self, chunk: bytes) -> bytes:
        """The next bytes of the text."""
        raw = chunk if self._has_begun else chunk.lstrip(b"\0")
        is_first = bool(raw) and not self._has_begun
        if is_first:
            self._has_begun = True
            encoding = _encoding_of(raw)
            self._decoder = None if encoding is None else codecs.getincrementaldecoder(encoding)(errors="replace")
        text = raw if self._decoder is None else self._decoder.decode(raw).encode("utf-8", "replace")
        if is_first:
            self._has_returns_only = b"\n" not in text and b"\r" in text
        return text.replace(b"\r", b"\n") if self._has_returns_only else text


def _encoding_of(head: bytes) -> str | None:
    """The form of UTF-16 that a text has, by its mark or by its zeros; None for all else."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = head[:_SAMPLE_BYTES]
    half = len(sample) // 2
    high, low = sample[1::2].count(0), sample[::2].count(0)  # of a text in little-endian order
    if half >= _LEAST_CHARACTERS and max(high, low) >= 0.7 * half and min(high, low) <= 0.05 * half:
        return "utf-16-le" if high > low else "utf-16-be"
    return None


def _is_text(head: bytes) -> bool:
    """Few bytes that no text holds: a log may carry some broken ones, and all of its head may be zeros."""
    strange = sum(head.count(bytes([byte])) for byte in (0, 1, 2, 3, 4, 5, 6))
    return strange * 1000 <= len(head)


def _cut(facts: SourceFacts, fault: str) -> SourceFacts:
    return replace(facts, is_complete=False, notes=(fault, *facts.notes))
