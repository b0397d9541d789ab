"""A native report as one object: what it declares, what it holds, and a note on everything that could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from doctor.errors import DamagedEvidenceError
from doctor.formats.nsys_report import container as parts
from doctor.formats.nsys_report.chunks import ChunkError, chunk_places, read_chunk
from doctor.formats.nsys_report.container import Container, read_container, read_section
from doctor.formats.nsys_report.decoder import Batches, EventDecoder
from doctor.formats.nsys_report.event_kinds import NEWEST_CLASS, NEWEST_TYPE
from doctor.formats.nsys_report.session import Session, read_session
from doctor.formats.nsys_report.spread_rows import SpreadRows
from doctor.formats.nsys_report.stream import DeclaredCounts, StreamLayout, read_layout
from doctor.formats.nsys_report.strings import read_strings
from doctor.formats.nsys_report.target import Row, TargetTables, read_target, read_thread_names
from doctor.formats.nsys_report.wire import WireError

MAX_SMALL_SECTION_BYTES = 16 << 20

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class TableRows:
    """Decoded rows of one of NVIDIA's tables."""

    table: str
    rows: pa.RecordBatch


@dataclass
class NsysReport:
    """An open report. `notes` and `is_complete` are final once `event_tables` is exhausted.

    Attributes:
        path: the file.
        container: head and directory.
        layout: where things lie in the event stream.
        session: when and with what was recorded.
        strings: texts by name id; empty where the table is lost.
        thread_names: rows of ThreadNames.
        target: GPUs, devices, contexts, streams.
        is_complete: false once anything was lost or does not add up.
        notes: one line for each such thing, nothing private in them.
    """

    path: Path
    container: Container
    layout: StreamLayout
    session: Session
    strings: list[bytes]
    thread_names: tuple[Row, ...]
    target: TargetTables
    is_complete: bool = True
    notes: list[str] = field(default_factory=list)

    def event_tables(self, progress: Progress | None = None) -> Iterator[TableRows]:
        """Yield whole rows of the event tables, chunk by chunk; memory is bounded by a batch."""
        for part in self.spread_rows(progress):
            yield TableRows(part.table.name, part.whole())

    def spread_rows(
        self, progress: Progress | None = None, ahead: Callable[[Batches], Batches] = lambda batches: batches
    ) -> Iterator[SpreadRows]:
        """The same as what repeats itself and what does not: for who needs few columns, or only what repeats.

        Args:
            progress: called as bytes are consumed.
            ahead: see `EventDecoder.decode`.
        """
        decoder = EventDecoder()
        with self.path.open("rb") as file:
            yield from decoder.decode(self._chunks(file, progress), ahead)
        self._check_counts(decoder)

    def text(self, string_id: int) -> str | None:
        """A text by its id, with bytes that are not UTF-8 replaced; None where there is none."""
        if not 0 <= string_id < len(self.strings):
            return None
        return self.strings[string_id].decode("utf-8", "replace")

    def lose(self, note: str) -> None:
        """Mark the report as incomplete and say why."""
        self.is_complete = False
        if note not in self.notes:
            self.notes.append(note)

    def _chunks(self, file: BinaryIO, progress: Progress | None) -> Iterator[bytes]:
        start, end = self.layout.blocks_start, self.layout.blocks_end
        num_damaged = 0
        try:
            for place in chunk_places(file, start, end):
                try:
                    chunk = read_chunk(file, place)
                except ChunkError:
                    num_damaged += 1
                    continue
                yield chunk
                if progress is not None:
                    progress(place.end, self.container.file_size)
        except ChunkError:
            self.lose("the event stream ends before its end: the rest of its blocks is cut or damaged")
        if num_damaged:
            self.lose(f"{num_damaged} damaged blocks of events were left out")

    def _check_counts(self, decoder: EventDecoder) -> None:
        counts, declared = decoder.counts, self.layout.declared
        if declared is None:
            self.lose("the declared counts are damaged: nothing tells whether all events are here")
            declared = DeclaredCounts(None, None, None, None)
        if declared.events is not None and declared.events != counts.events:
            self.lose(f"the report declares {declared.events} events and holds {counts.events}")
        if declared.generic_events is not None and declared.generic_events != counts.generic:
            self.lose(f"the report declares {declared.generic_events} generic events and holds {counts.generic}")
        if counts.broken_chunks:
            self.lose(
                f"{counts.broken_chunks} blocks of events are damaged inside; the events before the damage were read"
            )
        if counts.unreadable:
            self.lose(f"{counts.unreadable} events are damaged and were left out")
        if counts.generic:
            self.notes.append(f"{counts.generic} generic events (GPU metrics and the like) were not decoded")
        unread = {key: count for key, count in counts.unknown.items() if key not in _KNOWN_UNREAD}
        new = {key: count for key, count in unread.items() if _is_new(key)}
        if new:
            self.lose(f"events that only a newer recorder writes were left out: {_listed(new)}")
        if unread.keys() - new.keys():
            known = {key: count for key, count in unread.items() if key not in new}
            self.notes.append(f"events that no table takes: {_listed(known)}")


_KNOWN_UNREAD = {
    *((type_id, None) for type_id in (27, 28, 31, 41)),
    *((type_id, event_class) for type_id in (47, 48) for event_class in range(6, 13)),
}
"""CPU samples, composite and scheduler events, and the marks of profiling's own start and end."""


def _is_new(key: tuple[int, int | None]) -> bool:
    type_id, event_class = key
    return type_id > NEWEST_TYPE or (event_class is not None and event_class > NEWEST_CLASS)


def _listed(counts: dict[tuple[int, int | None], int]) -> str:
    return ", ".join(_describe(key, count) for key, count in sorted(counts.items(), key=str)[:12])


def _describe(key: tuple[int, int | None], count: int) -> str:
    type_id, event_class = key
    return f"{count} of type {type_id}" + ("" if event_class is None else f" class {event_class}")


def open_report(path: Path) -> NsysReport:
    """Open a report and read everything but its events.

    Raises:
        UnknownEvidenceError: the file is no report.
        DamagedEvidenceError: it is one, but nothing in it can be read.
    """
    with path.open("rb") as file:
        container = read_container(file, path)
        section = container.section(parts.RAW_SAMPLING_DATA)
        assert section is not None
        small = {
            name: read_section(file, found, MAX_SMALL_SECTION_BYTES)
            for name in (parts.SAMPLING_DATA_OFFSETS, parts.UI_DATA, parts.TIME_CONVERSION)
            if (found := container.section(name)) is not None
        }
        try:
            layout = read_layout(file, section, small.get(parts.SAMPLING_DATA_OFFSETS))
        except WireError as error:
            raise DamagedEvidenceError(
                f"{path} is cut or damaged before its first event: nothing in it can be read"
            ) from error
        session = read_session(
            layout.header, container.build_id, small.get(parts.UI_DATA), small.get(parts.TIME_CONVERSION)
        )
        report = NsysReport(path, container, layout, session, [], (), TargetTables())
        if not container.is_complete:
            report.lose("the report has no directory at its end: the recording or the copy was cut short")
        if not session.is_whole:
            report.lose("the header is damaged: capture window and clocks are not known")
        _read_strings(file, report)
    _read_tail(report)
    return report


def _read_strings(file: BinaryIO, report: NsysReport) -> None:
    declared = report.layout.declared
    if report.layout.strings is None:
        report.lose("the table of names is lost: kernels, calls and ranges have no names")
        return
    try:
        report.strings = read_strings(read_chunk(file, report.layout.strings)).strings
    except (ChunkError, WireError):
        report.lose("the table of names is damaged: kernels, calls and ranges have no names")
        return
    if declared and declared.strings is not None and declared.strings != len(report.strings):
        report.lose(f"the report declares {declared.strings} names and holds {len(report.strings)}")


def _read_tail(report: NsysReport) -> None:
    declared = report.layout.declared.thread_names if report.layout.declared else None
    has_names = declared != 0  # a recording without thread names leaves their message out
    tail = report.layout.tail
    if len(tail) < 1 + has_names:
        report.lose("thread names or devices are lost: the end of the event stream is cut")
    try:
        if tail and has_names:
            report.thread_names = read_thread_names(tail[0])
        if len(tail) > has_names:
            report.target = read_target(tail[has_names])
    except WireError:
        report.lose("thread names or devices are damaged")
        return
    if tail and declared is not None and declared != len(report.thread_names):
        report.lose(f"the report declares {declared} thread names and holds {len(report.thread_names)}")
