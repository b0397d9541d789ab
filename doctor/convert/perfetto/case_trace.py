"""The time-line of a case as tracks of Perfetto."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import duckdb

from doctor.case import trace_queries as queries
from doctor.convert.perfetto.lanes import Lanes
from doctor.convert.perfetto.marks import FindingTrack
from doctor.convert.perfetto.packets import PacketWriter
from doctor.errors import UsageError


@dataclass(frozen=True)
class TraceCounts:
    """What was written: slices by what they are, values of counters, and findings."""

    num_device: int
    num_calls: int
    num_ranges: int
    num_operators: int
    num_steps: int
    num_values: int
    num_findings: int

    @property
    def num_slices(self) -> int:
        """Slices but those of the findings."""
        return self.num_device + self.num_calls + self.num_ranges + self.num_operators + self.num_steps


def write_trace(connection: duckdb.DuckDBPyConnection, findings: Iterable[FindingTrack], output: Path) -> TraceCounts:
    """Write a derived case; the file appears only once it is whole.

    Args:
        connection: a case that was diagnosed, which derives it.
        findings: shown on tracks of their own, above everything else.
        output: a new file.

    Raises:
        UsageError: the file exists or cannot be written.
    """
    if output.exists():
        raise UsageError(f"{output} exists already: name another file or remove it first")
    partial = output.with_name(f".{output.name}.partial")
    try:
        with partial.open("wb") as file:
            counts = _Tracing(connection, file).write(tuple(findings))
        partial.replace(output)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return counts


@dataclass
class _Row:
    """A row of slices: its lanes become tracks of one name, which Perfetto shows together."""

    track: int
    name: str
    parent: int | None
    lanes: Lanes = field(default_factory=Lanes)
    tracks: dict[int, int] = field(default_factory=dict)


class _Tracing:
    """One file being written; times are moved so that none lies below zero, which the format cannot say."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, file: IO[bytes]) -> None:
        self._connection = connection
        self._writer = PacketWriter(file)
        self._names = queries.names(connection)
        self._shift_ns = max(0, -queries.earliest_ns(connection))
        self._processes: dict[tuple[int, int | None], int] = {}
        self._threads: dict[tuple[int, int | None, int | None], int] = {}
        self._devices: dict[tuple[int, int], int] = {}

    def write(self, findings: tuple[FindingTrack, ...]) -> TraceCounts:
        with self._writer:
            self._findings(findings)
            return TraceCounts(
                num_steps=self._steps(),
                num_device=self._device(),
                num_calls=self._on_threads(queries.call_rows(self._connection), ""),
                num_ranges=self._on_threads(queries.range_rows(self._connection), "NVTX"),
                num_operators=self._on_threads(queries.operator_rows(self._connection), "operators"),
                num_values=self._counters(),
                num_findings=len(findings),
            )

    def _findings(self, findings: tuple[FindingTrack, ...]) -> None:
        if not findings:
            return
        root = self._writer.ordered_track("Findings of Inference Doctor")
        for rank, finding in enumerate(findings):
            row = self._row(finding.title, root, rank=rank)
            for mark in sorted(finding.marks, key=lambda mark: (mark.start_ns, -mark.end_ns)):
                start_ns, end_ns = max(mark.start_ns, -self._shift_ns), max(mark.end_ns, mark.start_ns)
                track = self._lane(row, start_ns, end_ns)
                self._writer.slice(track, self._span(start_ns, end_ns), mark.name, "finding", details=mark.details)

    def _steps(self) -> int:
        count, row = 0, None
        for step in queries.step_rows(self._connection):
            row = row or self._row("Steps", None)
            track = self._lane(row, step.start_ns, step.end_ns)
            self._writer.slice(track, self._span(step.start_ns, step.end_ns), f"step {step.step_id}", "step")
            count += 1
        return count

    def _device(self) -> int:
        count, rows = 0, dict[tuple[int, int, int, int | None], _Row]()
        for work in queries.device_rows(self._connection):
            key = (work.source_id, work.device_id, work.stream_id, work.pid)
            row = rows.get(key) or rows.setdefault(key, self._stream(work))
            self._writer.slice(
                self._lane(row, work.start_ns, work.end_ns),
                self._span(work.start_ns, work.end_ns),
                work.name,
                work.category,
                flow=None if work.flow is None else (work.flow, True),
                details=(
                    ("bytes", work.size_bytes),
                    ("blocks", work.grid_blocks),
                    ("threads a block", work.block_threads),
                ),
            )
            count += 1
        return count

    def _on_threads(self, rows: Iterable[queries.ThreadRow], layer: str) -> int:
        """Slices of the threads themselves, or of a row of theirs with a name of its own."""
        count, shown = 0, dict[tuple[int, int | None, int | None], _Row]()
        for work in rows:
            key = (work.source_id, work.pid, work.tid)
            row = shown.get(key) or shown.setdefault(key, self._layer(key, layer))
            self._writer.slice(
                self._lane(row, work.start_ns, work.end_ns),
                self._span(work.start_ns, work.end_ns),
                work.name,
                work.category,
                flow=None if work.flow is None else (work.flow, False),
            )
            count += 1
        return count

    def _counters(self) -> int:
        count, track, shown = 0, 0, None
        for value in queries.counter_rows(self._connection):
            if (value.source_id, value.name) != shown:
                name = f"{self._rank(value.source_id)}{value.name}"
                track, shown = self._writer.counter_track(name, is_bytes=name.endswith("(bytes)")), value[:2]
            self._writer.count(track, max(value.time_ns + self._shift_ns, 0), value.value)
            count += 1
        return count

    def _span(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        return start_ns + self._shift_ns, end_ns + self._shift_ns

    def _row(self, name: str, parent: int | None, *, rank: int | None = None) -> _Row:
        track = self._writer.track(name, parent, rank=rank)
        return _Row(track, name, parent, tracks={0: track})

    def _lane(self, row: _Row, start_ns: int, end_ns: int) -> int:
        lane = row.lanes.lane_for(start_ns, end_ns)
        if lane not in row.tracks:
            row.tracks[lane] = self._writer.track(row.name, row.parent)
        return row.tracks[lane]

    def _layer(self, key: tuple[int, int | None, int | None], layer: str) -> _Row:
        thread = self._thread(key)
        return self._row(layer, thread) if layer else _Row(thread, "calls", thread, tracks={0: thread})

    def _stream(self, work: queries.DeviceRow) -> _Row:
        key = (work.source_id, work.device_id)
        if key not in self._devices:
            product = self._names.devices.get(key)
            name = f"{self._rank(work.source_id)}GPU {work.device_id}" + (f" ({product})" if product else "")
            self._devices[key] = self._writer.track(name)
        process = "" if work.pid is None else f", process {work.pid}"
        return self._row(f"stream {work.stream_id}{process}", self._devices[key])

    def _thread(self, key: tuple[int, int | None, int | None]) -> int:
        if key not in self._threads:
            source_id, pid, tid = key
            process = self._process(source_id, pid)
            name = self._names.threads.get(key) or f"thread {tid}"
            if pid is not None and tid is not None and self._names.are_pids_unique:
                self._threads[key] = self._writer.thread_track(pid, tid, name)
            else:
                self._threads[key] = self._writer.track(name, process)
        return self._threads[key]

    def _process(self, source_id: int, pid: int | None) -> int:
        key = (source_id, pid)
        if key not in self._processes:
            name = self._rank(source_id) + (self._names.processes.get(key) or "process")
            if pid is not None and self._names.are_pids_unique:
                self._processes[key] = self._writer.process_track(pid, name)
            else:  # ranks on different machines may share a process id, which Perfetto would take for one process
                self._processes[key] = self._writer.track(name if pid is None else f"{name} {pid}")
        return self._processes[key]

    def _rank(self, source_id: int) -> str:
        rank = self._names.ranks.get(source_id)
        return "" if rank is None else f"rank {rank}: "
