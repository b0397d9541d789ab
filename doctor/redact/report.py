"""Native reports of Nsight Systems: every private text is overwritten at equal length, blocks are packed anew.

Names of kernels, API functions, NVTX ranges and of the threads that were traced stay. Everything else that is text
loses its folders; options, environment, command lines, process lists, host, user, and what the programs printed are
overwritten altogether.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from doctor.errors import DamagedEvidenceError
from doctor.formats.nsys_report import container as parts
from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.chunks import ChunkError, chunk_place, chunk_places, read_chunk
from doctor.formats.nsys_report.container import read_section
from doctor.formats.nsys_report.decoder import EventDecoder
from doctor.formats.nsys_report.event_kinds import DIAGNOSTIC_EVENT, PROCESSES
from doctor.formats.nsys_report.events import event_spans
from doctor.formats.nsys_report.report import MAX_SMALL_SECTION_BYTES, NsysReport, open_report
from doctor.formats.nsys_report.strings import StringTable, read_strings
from doctor.formats.nsys_report.target import Row
from doctor.formats.nsys_report.wire import Message, WireError
from doctor.formats.nsys_report.writer import ReportWriter, StreamParts
from doctor.formats.recorder_words import recorder_message_in_place
from doctor.redact.masking import DEVICE, TextRules, hide_all, hide_folders, hide_texts
from doctor.redact.secrets import MASK, Secrets

_API_NAME = re.compile(rb"_{0,2}(?:cuda|cu|nv|gl|egl|vk|nvtx|mpi|MPI|omp|acc)[A-Z_][A-Za-z0-9_]*")
_MODULE = re.compile(rb"(?:[A-Za-z]:)?[\\/][^\n]{1,4096}\.(?:so(?:\.[\d.]{1,20})?|dll|exe|pyd)")
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HOST_KEY, _ENVIRONMENT_KEY = 619, 610
_PUBLIC_KEYS = frozenset({1, 2, 3, 5, 7, 13, 14, 101, 203, 205, 600, 601, 605, 611, 618, 897, 912})
"""Properties of the machine that name its hardware and software: CPU, GPUs, driver, kernel, operating system."""
_UI_PUBLIC_FIELDS = (2, 4, 6, 7, 20, 21, 22)
_OPAQUE_EVENTS = frozenset({28, 31, 41})
_NVTX_PAYLOAD, _CUDA_PAYLOAD, _MEMORY_PAYLOAD = 102, 107, 123
_THREAD_BITS = (1 << 24) - 1
_STRING_COLUMNS = ("demangledName", "shortName", "mangledName", "nameId", "textId", "jsonTextId")


def redact_report(path: Path, target: BinaryIO) -> None:
    """Write a copy of a report without anything private.

    Raises:
        UnknownEvidenceError: the file is no report.
        DamagedEvidenceError: it is cut or damaged: what cannot be read cannot be redacted.
    """
    report = open_report(path)
    layout = report.layout
    if not report.is_complete or layout.strings is None:
        raise DamagedEvidenceError(f"{path} is incomplete ({report.notes[0]}): redact the whole recording instead")
    try:
        with path.open("rb") as file:
            _Redaction(file, report).write(target)
    except (ChunkError, WireError) as error:
        raise DamagedEvidenceError(f"{path} is damaged ({error}): redact the whole recording instead") from error


@dataclass(frozen=True)
class _Used:
    """Ids of texts by what they are.

    Attributes:
        spoken: names of kernels, calls, ranges and threads of the processes that were traced: they stay.
        private: environments, outputs and names of other threads: they go altogether.
    """

    spoken: frozenset[int]
    private: frozenset[int]


class _Redaction:
    """One report on its way through."""

    def __init__(self, file: BinaryIO, report: NsysReport) -> None:
        self._file = file
        self._report = report
        self._sections = {
            section.name: read_section(file, section, MAX_SMALL_SECTION_BYTES)
            for section in report.container.sections
            if section.name not in {parts.RAW_SAMPLING_DATA, parts.SAMPLING_DATA_OFFSETS}
        }
        assert report.layout.strings is not None
        self._strings = read_strings(read_chunk(file, report.layout.strings))
        self._used, environments = self._find_used()
        secrets = _harvest(report, self._sections)
        for environment in environments:
            secrets.add_environment(environment)
        self._pattern = secrets.pattern()
        self._values = secrets.value_pattern()

    def write(self, target: BinaryIO) -> None:
        """Write everything in the order of the original."""
        writer = ReportWriter(target, self._report.container.head)
        for section in self._report.container.sections:
            if section.name == parts.RAW_SAMPLING_DATA:
                writer.add_stream(self._stream())
            elif section.name != parts.SAMPLING_DATA_OFFSETS:
                writer.add_section(section.name, self._section(section.name))
        writer.finish()

    def _stream(self) -> StreamParts:
        layout = self._report.layout
        schemas = None
        if layout.payload_schemas is not None:
            end = layout.section.offset + layout.section.size
            schemas = read_chunk(self._file, chunk_place(self._file, layout.payload_schemas, end))
        general = TextRules(self._hide_but_hardware, {})
        return StreamParts(
            header=self._header(layout.header),
            info=hide_texts(layout.info, general),
            chunks=map(self._chunk, self._chunks()),
            strings=self._string_table(),
            tail=tuple(hide_texts(message, general) for message in layout.tail),
            payload_schemas=schemas,
        )

    def _chunks(self) -> Iterator[bytes]:
        layout = self._report.layout
        for place in chunk_places(self._file, layout.blocks_start, layout.blocks_end):
            yield read_chunk(self._file, place)

    def _section(self, name: str) -> bytes:
        content = self._sections[name]
        public = {parts.ANALYSIS_OPTIONS: (1,), parts.UI_DATA: _UI_PUBLIC_FIELDS}.get(name)
        if public is not None:
            return hide_texts(content, TextRules(hide_all, {(number,): self._hide_but_hardware for number in public}))
        if name == parts.TIME_CONVERSION:
            return content
        return hide_texts(content, TextRules(_hide_all_but_api_names, {}))

    def _header(self, header: bytes) -> bytes:
        public = self._hide_but_hardware
        return _hide_properties(hide_texts(header, TextRules(public, {(2,): hide_all, (2, 1): public})))

    def _string_table(self) -> StringTable:
        return replace(
            self._strings, strings=list(map(self._string, *zip(*enumerate(self._strings.strings), strict=True)))
        )

    def _string(self, index: int, text: bytes) -> bytes:
        if index in self._used.spoken:
            return text
        if index not in self._used.private and _MODULE.fullmatch(text):
            return self._hide_folders(text)
        return _hide_all_but_api_names(text)

    def _chunk(self, chunk: bytes) -> bytes:
        out = bytearray(chunk)
        spans = event_spans(chunk)
        if not spans.is_whole:
            raise ChunkError("a block of events is damaged inside")
        for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True):
            self._event(out, start, end)
        for start, end in spans.generic:
            self._hide_values(out, start, end)
        return bytes(out)

    def _event(self, data: bytearray, start: int, end: int) -> None:
        type_id, position = wire.read_varint(data, start + 1, end)
        if type_id in _OPAQUE_EVENTS:
            return
        if type_id in PROCESSES.types | DIAGNOSTIC_EVENT.types:
            hide = hide_all if type_id in PROCESSES.types else self._hide_but_hardware
            data[start:end] = hide_texts(bytes(data[start:end]), TextRules(hide, {}))
            return
        payload, _ = wire.read_varint(data, position, end)
        if payload >> 3 not in {_NVTX_PAYLOAD, _CUDA_PAYLOAD, _MEMORY_PAYLOAD}:
            self._hide_values(data, start, end)

    def _hide_values(self, data: bytearray, start: int, end: int) -> None:
        if self._values is not None and self._values.search(data, start, end):
            data[start:end] = self._values.sub(lambda match: MASK * len(match[0]), data[start:end])

    def _keep_public(self, text: bytes) -> bytes:
        return text if self._pattern is None else self._pattern.sub(lambda match: MASK * len(match[0]), text)

    def _hide_folders(self, text: bytes) -> bytes:
        return self._keep_public(hide_folders(text))

    def _hide_but_hardware(self, text: bytes) -> bytes:
        is_hardware = DEVICE.fullmatch(text) or _UUID.fullmatch(text)
        return self._keep_public(text if is_hardware else recorder_message_in_place(text))

    def _find_used(self) -> tuple[_Used, list[bytes]]:
        spoken: set[int] = set()
        processes: set[int] = set()
        environments: set[int] = set()
        for part in EventDecoder().decode(self._chunks()):
            rows = part.known.batch
            columns = set(rows.schema.names)
            for name in columns.intersection(_STRING_COLUMNS):
                spoken.update(_distinct(rows.column(name)))
            if part.table is PROCESSES:
                environments.update(_distinct(rows.column("environmentId")))
            elif part.table is not DIAGNOSTIC_EVENT:
                for name in columns & {"globalPid", "globalTid"}:
                    processes.update(value & ~_THREAD_BITS for value in _distinct(rows.column(name)))
        named = {
            is_traced: {row["nameId"] for row in self._report.thread_names if (_process(row) in processes) is is_traced}
            for is_traced in (True, False)
        }
        spoken.update(name for name in named[True] if isinstance(name, int))
        private = {name for name in named[False] if isinstance(name, int)} | environments | self._strings.output_ids()
        texts = self._strings.strings
        found = [texts[index] for index in sorted(environments) if 0 <= index < len(texts)]
        return _Used(frozenset(spoken | {0}), frozenset(private - spoken)), found


def _process(row: Row) -> int | None:
    thread = row["globalTid"]
    return thread & ~_THREAD_BITS if isinstance(thread, int) else None


def _distinct(values: pa.Array) -> list[int]:
    found: list[int] = pc.unique(values.drop_null()).to_pylist()
    return found


def _hide_all_but_api_names(text: bytes) -> bytes:
    return text if _API_NAME.fullmatch(text) else hide_all(text)


def _hide_properties(header: bytes) -> bytes:
    """Overwrite the values of the machine's properties that are not public."""
    out = bytearray(header)
    for machine in _inside(out, 0, len(out), 1):
        for group in _inside(out, *machine, 2):
            for entry in _inside(out, *group, 1):
                spans = {span.number: span for span in wire.read_spans(out, *entry)}
                key, value = spans.get(1), spans.get(2)
                if key is None or value is None or value.wire_type != wire.BYTES:
                    continue
                number, _ = wire.read_varint(out, key.start, key.end)
                raw = bytes(out[value.start : value.end])
                if number not in _PUBLIC_KEYS and not re.fullmatch(rb"-?[0-9.]{0,20}", raw):
                    out[value.start : value.end] = re.sub(rb"[\x20-\x7e\x80-\xff]{2,}", _masked, raw)
    return bytes(out)


def _masked(match: re.Match[bytes]) -> bytes:
    return MASK * len(match[0])


def _inside(data: bytearray, start: int, end: int, number: int) -> list[tuple[int, int]]:
    return [
        (span.start, span.end)
        for span in wire.read_spans(data, start, end)
        if span.number == number and span.wire_type == wire.BYTES
    ]


def _harvest(report: NsysReport, sections: dict[str, bytes]) -> Secrets:
    """Find hosts, users, environment and arguments where the report keeps them under known numbers."""
    secrets = Secrets()
    header = Message(report.layout.header)
    for machine in header.messages(1):
        for group in machine.messages(2):
            for entry in group.messages(1):
                _harvest_property(secrets, entry)
    options = [*header.messages(2), Message(sections.get(parts.ANALYSIS_OPTIONS, b""))]
    for option in options:
        secrets.add_name(option.raw(9))
        for program in option.messages(26):
            _harvest_program(secrets, program)
    ui = Message(sections.get(parts.UI_DATA, b""))
    for number in (5, 24, 40):
        secrets.add_name(ui.raw(number))
    secrets.add_value(ui.raw(25) or b"")
    return secrets


def _harvest_property(secrets: Secrets, entry: Message) -> None:
    key, value = entry.integer(1), entry.raw(2) or b""
    if key == _HOST_KEY:
        secrets.add_name(value)
    elif key == _ENVIRONMENT_KEY:
        secrets.add_environment(value)


def _harvest_program(secrets: Secrets, program: Message) -> None:
    for number in (10, 11, 12, 13):
        for value in program.raws(number):
            secrets.add_value(value)
    for variable in program.messages(30):
        secrets.add_variable(variable.raw(1) or b"", variable.raw(2) or b"")
