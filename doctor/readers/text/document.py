"""Any text: a log, a paste, standard input. Shows its lines to the scanners and passes on what they find."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import UnknownEvidenceError
from doctor.readers.evidence_file import EvidenceFile, open_evidence
from doctor.readers.protocol import Progress, no_progress
from doctor.readers.text import new_scanners
from doctor.readers.text.scanner import Scanner

MOST_LINE_BYTES = 64 * 1024
DRAIN_LINES = 4096
RECOGNISE_BYTES = 256 * 2**20
"""How far into a text its first piece of evidence is looked for: a server may talk for hours before it dies."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")


class TextDocumentReader:
    """Evidence within a text, told by content; one source for each kind found."""

    kind = "engine-log"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell whether a text holds anything that a scanner takes.

        Args:
            path: an existing file.
            head: its first 64 KiB after decompression.
        """
        if not _is_text(head):
            return False
        desk = _Desk(new_scanners())
        for _ in desk.read(_lines(open_evidence(path), no_progress, RECOGNISE_BYTES)):
            return True
        return any(scanner.facts() is not None for scanner in desk.scanners)

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield rows by kind, then one `SourceFacts` for each kind.

        Raises:
            UnknownEvidenceError: no scanner found anything.
        """
        file = open_evidence(path)
        desk = _Desk(new_scanners())
        yield from desk.read(_lines(file, progress))
        found = [(scanner, facts) for scanner in desk.scanners if (facts := scanner.facts()) is not None]
        if not found:
            raise UnknownEvidenceError(f"{path} is a text in which nothing is known as evidence")
        for scanner, facts in found:
            yield from scanner.drain()
            yield facts if file.cut_short is None else _cut(facts, file.cut_short)


class _Desk:
    """Shows each line to the scanners that want it."""

    def __init__(self, scanners: tuple[Scanner, ...]) -> None:
        self.scanners = scanners
        words = sorted({clue for scanner in scanners for clue in scanner.clues}, key=len, reverse=True)
        self._clue = re.compile("|".join(re.escape(word) for word in words))

    def read(self, lines: Iterable[str]) -> Iterator[TableBatch]:
        clue, scanners = self._clue, self.scanners
        number = 0
        for number, text in enumerate(lines, 1):
            has_clue = clue.search(text) is not None
            for scanner in scanners:
                if scanner.is_open or (has_clue and any(word in text for word in scanner.clues)):
                    scanner.line(number, text)
            if number % DRAIN_LINES == 0:
                yield from self._drained()
        yield from self._drained()

    def _drained(self) -> Iterator[TableBatch]:
        for scanner in self.scanners:
            yield from scanner.drain()


def _lines(file: EvidenceFile, progress: Progress, most_bytes: int | None = None) -> Iterator[str]:
    """Lines of a file, decoded; a line without end is cut, so that memory stays bounded."""
    pending, done = b"", 0
    for chunk in file.chunks(progress):
        done += len(chunk)
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            yield _decoded(line)
        if len(pending) > MOST_LINE_BYTES:
            yield _decoded(pending)
            pending = b""
        if most_bytes is not None and done >= most_bytes:
            break
    if pending:
        yield _decoded(pending)


def _decoded(line: bytes) -> str:
    text = line[:MOST_LINE_BYTES].decode("utf-8", errors="replace").rstrip("\r")
    return _COLOUR.sub("", text) if "\x1b" in text else text


def _is_text(head: bytes) -> bool:
    """Few bytes that no text holds: a log may carry some broken ones."""
    strange = sum(head.count(bytes([byte])) for byte in (0, 1, 2, 3, 4, 5, 6))
    return bool(head) and strange * 1000 <= len(head)


def _cut(facts: SourceFacts, fault: str) -> SourceFacts:
    return replace(facts, is_complete=False, notes=(fault, *facts.notes))
