from __future__ import annotations

import gzip
import json
import random
import threading
from pathlib import Path

import pytest

from doctor.errors import DamagedEvidenceError, UnknownEvidenceError
from doctor.readers.protocol import no_progress
from doctor.readers.torch_trace import TorchTraceReader
from tests.support.reading import read_all, rows
from tests.support.torch_traces import call, kernel, write_trace
from tests.support.traces import shared_trace


def test_a_bare_array_reads_and_says_what_it_lacks(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_text("\ufeff\n" + json.dumps([kernel("k", 1), call("cudaLaunchKernel", 0)]))
    reading = read_all(trace)
    assert reading.row_counts()["kernel"] == 1
    assert not reading.facts.is_complete
    assert "bare list" in reading.facts.notes[0]


@pytest.mark.parametrize("word", ["NaN", "nan", "-nan", "Infinity", "-Infinity", "inf", "-inf"])
def test_a_number_that_is_none_costs_its_own_field_only(word: str, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", kernel("NaN, inf", 1, 77777), kernel("k", 88888), kernel("j", 5, rate=99999))
    text = trace.read_text().replace("77777", word).replace("88888", word).replace("99999", word)
    trace.write_text(text)
    reading = read_all(trace)
    assert rows(reading, "kernel", "name", "start_ns", "end_ns") == [("NaN, inf", 1000, None), ("j", 5000, 6000)]
    assert reading.facts.notes == (
        "1 events have no readable time and were left out",
        "1 events have no readable duration: their end is unknown",
    )
    assert not reading.facts.is_complete


def test_integers_beyond_64_bits_do_not_disturb(tmp_path: Path) -> None:
    trace = write_trace(
        tmp_path / "t",
        kernel("a", 1, correlation=10159970886766084423, **{"Comms Id": 10**30}),
        kernel("b", 2, correlation=10**40),
        kernel("c", 3, correlation=7),
    )
    assert rows(read_all(trace), "kernel", "name", "correlation_id") == [("a", None), ("b", None), ("c", 7)]


@pytest.mark.parametrize(
    "broken",
    [
        b'{"ph": "X", "cat": "kernel", "name": "tab\there", "ts": 1, "dur": 1}',
        b'{"ph": "X", "cat": "kernel", "name": "C:\\path", "ts": 1, "dur": 1}',
        b'{"ph": "X", "cat": "kernel", "name": "\xff", "ts": 1, "dur": 1}',
        b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": [1, 2]}',
        b'{"ph": "X", "cat": "kernel", "name": "k", "ts": "1", "dur": "1"}',
        b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 1e0, "dur": 1.0000, "args": null}',
        b'{"ph": 7, "cat": null, "name": "k"}, {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}',
    ],
)
def test_an_event_that_is_no_valid_json_is_mended(broken: bytes, tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(
        b'{"traceEvents": [' + broken + b', {"ph": "X", "cat": "kernel", "name": "z", "ts": 2, "dur": 1}]}'
    )
    reading = read_all(trace)
    assert rows(reading, "kernel", "start_ns", "end_ns") == [(1000, 2000), (2000, 3000)]


def test_mending_is_said_and_keeps_nanoseconds_of_the_epoch(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a\tb", "ts": 1712195495519689.047, "dur": 1}]}'
    )
    reading = read_all(trace)
    assert reading.column("kernel", "start_ns") == [1712195495519689047]
    assert reading.facts.notes == ("1 events are no valid JSON and were mended",)
    assert not reading.facts.is_complete


def test_a_hole_of_zeros_and_things_between_events_are_counted(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", *(kernel(f"kernel number {at}", at) for at in range(9)))
    text = trace.read_bytes()
    hole = slice(text.index(b"number 3"), text.index(b"number 6"))
    trace.write_bytes(text[: hole.start] + bytes(hole.stop - hole.start) + text[hole.stop :])
    reading = read_all(trace)
    assert reading.facts.notes == ("1 events are no valid JSON and were left out",)
    assert reading.row_counts()["kernel"] == 5
    trace.write_bytes(text.replace(b"\n    },", b"\n    }, 7,", 1))
    assert read_all(trace).facts.notes == ("1 events are no valid JSON and were left out",)


def test_an_event_beyond_mending_is_counted_and_its_neighbours_are_kept(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    trace.write_bytes(
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 1}, {"ph" "X" nonsense},'
        b'{"ph": "X", "cat": "kernel", "name": "b", "ts": 2, "dur": 1}]}'
    )
    reading = read_all(trace)
    assert reading.column("kernel", "name") == ["a", "b"]
    assert reading.facts.notes == ("1 events are no valid JSON and were left out",)
    assert not reading.facts.is_complete


def test_a_cut_trace_keeps_its_whole_events_and_says_how_many(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", *(kernel(f"k{at}", at) for at in range(100)))
    text = trace.read_text()
    trace.write_text(text[: text.index('"k60"')])
    reading = read_all(trace)
    assert reading.row_counts()["kernel"] == 60
    assert reading.facts.notes == ("the trace is cut: it ends within its list; 60 whole events were read",)


def test_a_cut_inside_the_values_behind_the_events_is_said(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    events = json.dumps([kernel("k", 1)])
    trace.write_text('{"traceEvents": ' + events + ', "deviceProperties": [{"id": 0')
    reading = read_all(trace)
    assert reading.row_counts()["kernel"] == 1
    assert not reading.facts.is_complete


def test_values_behind_the_events_count_as_much_as_those_in_front(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    events = json.dumps([kernel("k", 1)])
    trace.write_text('{"traceEvents": ' + events + ', "x": [{"y": 1}, {"y": 2}], "distributedInfo": {"rank": 5}}')
    reading = read_all(trace)
    assert reading.facts.rank == 5
    assert reading.facts.is_complete


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('{"schemaVersion": 1, "traceEvents": []}', DamagedEvidenceError, "holds no events"),
        ('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat"', DamagedEvidenceError, "cut before its first"),
        ('{"deviceProperties": []}', DamagedEvidenceError, "holds no `traceEvents`"),
        ('{"schemaVersion": 2}', UnknownEvidenceError, "is JSON, but no trace"),
        ('{"some": "json"}', UnknownEvidenceError, "is JSON, but no trace"),
        ("[1, 2, 3]", UnknownEvidenceError, "is JSON, but no trace"),
    ],
)
def test_json_without_an_event_is_refused_in_one_line(
    text: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    trace = tmp_path / "t.json"
    trace.write_text(text)
    with pytest.raises(error, match=message) as caught:
        read_all(trace)
    assert "\n" not in str(caught.value)


def test_a_trace_whose_events_stand_behind_much_else_is_known(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t", kernel("k", 1))
    text = trace.read_text().replace('"schemaVersion": 1', '"metadata": "' + "x" * 300_000 + '"')
    trace.write_text(text)
    assert read_all(trace).row_counts()["kernel"] == 1


def test_public_damaged_traces_are_refused_or_loudly_incomplete() -> None:
    notes = {}
    for name in ("trunc60_bert.json.gz", "nan_bert.json", "bare_array_bert.json"):
        reading = read_all(shared_trace(f"public/{name}"))
        assert not reading.facts.is_complete, name
        notes[name] = reading.facts.notes[0]
    assert notes == {
        "trunc60_bert.json.gz": "its gzip data ends too early; what came before was read",
        "nan_bert.json": "1 events have no readable duration: their end is unknown",
        "bare_array_bert.json": (
            "a bare list of events: devices, rank and clock, which stand beside the list, are missing"
        ),
    }
    with pytest.raises(DamagedEvidenceError, match="holds no events"):
        read_all(shared_trace("public/empty_events.json"))


def test_a_checksum_that_fails_behind_the_last_event_is_said_wherever_it_lies(tmp_path: Path) -> None:
    text = write_trace(tmp_path / "t", kernel("k", 1), call("cudaLaunchKernel", 0)).read_bytes()
    for size in (0, 3 << 20):
        packed = bytearray(gzip.compress(text + random.Random(size).randbytes(size).hex().encode() + b"\n"))
        packed[-5] ^= 1
        damaged = tmp_path / f"{size}.gz"
        damaged.write_bytes(packed)
        reading = read_all(damaged)
        assert reading.row_counts()["kernel"] == 1
        assert reading.facts.notes == ("its gzip data is damaged; what came before was read",)


def test_no_thread_goes_on_unpacking_when_the_reading_stops_early(tmp_path: Path) -> None:
    event = json.dumps(call("cudaLaunchKernel", 0)) + ","
    packed = tmp_path / "t.gz"
    packed.write_bytes(gzip.compress(b'{"traceEvents": [' + event.encode() * 200_000, compresslevel=1))
    before = threading.active_count()
    parts = iter(TorchTraceReader().read(packed, no_progress))
    next(parts)
    assert threading.active_count() > before
    parts.close()  # type: ignore[attr-defined] # it is a generator
    assert threading.active_count() == before
