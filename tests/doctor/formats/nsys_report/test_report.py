from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from doctor.errors import DamagedEvidenceError, EvidenceError, UnknownEvidenceError
from doctor.formats.nsys_report import wire
from doctor.formats.nsys_report.container import END_MARK, FILE_MARK, STREAM_MARK
from doctor.formats.nsys_report.events import MAX_EVENTS_OF_A_CHUNK
from doctor.formats.nsys_report.report import NsysReport, open_report
from doctor.formats.nsys_report.strings import StringTable
from tests.support.native_reports import (
    HEALTHY,
    SICK,
    call,
    chunk,
    event,
    kernel,
    made_of,
    message,
    nvtx_range,
    report,
    take_apart,
)
from tests.support.traces import shared_trace

STRINGS = [b"[Unknown]", b"a_kernel", b"cudaLaunchKernel"]


def tables_of(opened: NsysReport) -> dict[str, list[dict[str, object]]]:
    rows: dict[str, list[dict[str, object]]] = {}
    for part in opened.event_tables():
        rows.setdefault(part.table, []).extend(part.rows.to_pylist())
    return rows


def read(path: Path) -> tuple[NsysReport, dict[str, list[dict[str, object]]]]:
    opened = open_report(path)
    return opened, tables_of(opened)


@pytest.mark.parametrize("name", [SICK, HEALTHY])
def test_declared_counts_of_a_real_report_are_those_that_it_holds(name: str) -> None:
    opened, _ = read(report(name))
    assert opened.is_complete
    assert opened.notes == []
    assert opened.session.version == (2025, 3, 1)
    assert opened.session.graph_trace_level == "graph"


def test_a_made_report_reads_as_it_was_made(tmp_path: Path) -> None:
    opened, rows = read(made_of([kernel(100, 1), call(90, 2)], STRINGS).put_together(tmp_path / "made.nsys-rep"))
    assert opened.is_complete
    assert [row["start"] for row in rows["CUPTI_ACTIVITY_KIND_KERNEL"]] == [100]
    assert rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["mangledName"] is None
    assert [(row["start"], row["end"]) for row in rows["CUPTI_ACTIVITY_KIND_RUNTIME"]] == [(90, 95)]
    assert opened.text(2) == "cudaLaunchKernel"
    assert opened.text(99) is None


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ({1: 3, 3: 3, 5: 0}, "3 events and holds 2"),
        ({1: 1, 3: 3, 5: 0}, "1 events and holds 2"),
        ({1: 2, 3: 4, 5: 0}, "4 names and holds 3"),
        ({1: 2, 3: 3, 5: 7}, "7 thread names and holds 1"),
        ({1: 2, 3: 3, 5: 0, 15: 2}, "2 generic events and holds 0"),
    ],
    ids=["too many events", "too few events", "names", "thread names", "generic events"],
)
def test_a_wrong_count_makes_the_report_incomplete(counts: dict[int, int], word: str, tmp_path: Path) -> None:
    path = made_of([kernel(100, 1), call(90, 2)], STRINGS, info=message(counts)).put_together(
        tmp_path / "made.nsys-rep"
    )
    opened, rows = read(path)
    assert not opened.is_complete
    assert any(word in note for note in opened.notes)
    assert len(rows["CUPTI_ACTIVITY_KIND_KERNEL"]) == 1


def test_an_event_type_that_nobody_knows_is_counted_and_named(tmp_path: Path) -> None:
    events = [kernel(100, 1), event(9999, 107, {1: 5}), event(9999, 107, {1: 6}), call(3, 2, event_class=222)]
    opened, rows = read(made_of(events, STRINGS).put_together(tmp_path / "made.nsys-rep"))
    assert not opened.is_complete
    assert opened.notes == [
        "events that only a newer recorder writes were left out: 1 of type 48 class 222, 2 of type 9999"
    ]
    assert set(rows) == {"CUPTI_ACTIVITY_KIND_KERNEL"}


def test_a_known_event_that_no_table_takes_is_named_and_no_loss(tmp_path: Path) -> None:
    events = [kernel(100, 1), event(148, 150, {1: 5}), call(3, 2, event_class=78)]
    opened, _ = read(made_of(events, STRINGS).put_together(tmp_path / "made.nsys-rep"))
    assert opened.is_complete
    assert opened.notes == ["events that no table takes: 1 of type 148, 1 of type 48 class 78"]


def test_generic_events_are_counted_apart(tmp_path: Path) -> None:
    generic = [message({1: 1 << 48, 2: 10, 3: b"\x01\x02"})] * 3
    info = message({1: 1, 3: 3, 5: 0, 15: 3})
    parts = made_of([kernel(100, 1)], STRINGS, info=info, chunks=[chunk([kernel(100, 1)], generic)])
    opened, rows = read(parts.put_together(tmp_path / "made.nsys-rep"))
    assert opened.is_complete
    assert len(rows["CUPTI_ACTIVITY_KIND_KERNEL"]) == 1
    assert "3 generic events" in opened.notes[0]


def test_an_event_that_is_not_what_its_type_says_is_left_out_and_counted(tmp_path: Path) -> None:
    damaged = [
        message([(1, 79), (107, b"\xff\xff\xff")]),
        message([(1, 79), (102, message({1: 1}))]),
        message([(1, 48), (108, b"\x0a\x7f")]),
        b"\xff\xff",
    ]
    opened, rows = read(made_of([kernel(100, 1), *damaged], STRINGS).put_together(tmp_path / "made.nsys-rep"))
    assert not opened.is_complete
    assert opened.notes == ["4 events are damaged and were left out"]
    assert len(rows["CUPTI_ACTIVITY_KIND_KERNEL"]) == 1


def test_a_field_added_by_a_newer_version_changes_nothing(tmp_path: Path) -> None:
    old = kernel(100, 1)
    size_at = old.index(b"\xda\x06") + 2  # tag of the payload, field 107
    payload, end = wire.read_varint(old, size_at, len(old))
    assert end + payload == len(old)
    newer = old[end:] + message([(250, 7), (251, b"new"), (252, {1: 5})])
    parts = made_of([old, message([(1, 79), (107, newer)])], STRINGS)
    opened, rows = read(parts.put_together(tmp_path / "made.nsys-rep"))
    assert opened.is_complete
    first, second = rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert first == second


def test_a_negative_time_stays_negative(tmp_path: Path) -> None:
    _, rows = read(made_of([kernel(-3_174_183_462, 1)], STRINGS).put_together(tmp_path / "made.nsys-rep"))
    assert rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["start"] == -3_174_183_462


@pytest.mark.parametrize("size", [0, 3, 5_000], ids=["empty", "short", "long"])
def test_texts_of_any_length_come_whole(size: int, tmp_path: Path) -> None:
    texts = [bytes([97 + index]) * (size + index) for index in range(5)]
    events = [nvtx_range(at, text) for at, text in enumerate(texts)]
    _, rows = read(made_of(events, STRINGS).put_together(tmp_path / "made.nsys-rep"))
    assert [row["text"] for row in rows["NVTX_EVENTS"]] == [text.decode() for text in texts]


def test_a_text_that_is_not_utf8_is_read_with_replacements(tmp_path: Path) -> None:
    diagnostic = event(49, 110, {1: {1: 5, 2: 1}, 2: 1, 3: 2, 4: b"caf\xe9", 5: 1})
    _, rows = read(made_of([diagnostic], STRINGS).put_together(tmp_path / "made.nsys-rep"))
    assert rows["DIAGNOSTIC_EVENT"][0]["text"] == "caf�"


def test_a_damaged_block_costs_its_own_events_only(tmp_path: Path) -> None:
    parts = take_apart(report(SICK))
    whole = parts.put_together(tmp_path / "whole.nsys-rep")
    opened, rows = read(whole)
    raw = bytearray(whole.read_bytes())
    raw[opened.layout.blocks_start + 50_000 : opened.layout.blocks_start + 50_040] = bytes(40)
    (tmp_path / "hurt.nsys-rep").write_bytes(raw)
    hurt, left = read(tmp_path / "hurt.nsys-rep")
    assert not hurt.is_complete
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    assert 0 < len(left[kernels]) < len(rows[kernels])
    assert {row["gridId"] for row in left[kernels]} < {row["gridId"] for row in rows[kernels]}


def test_without_its_names_a_report_gives_rows_and_says_so(tmp_path: Path) -> None:
    whole = take_apart(report(HEALTHY)).put_together(tmp_path / "whole.nsys-rep")
    opened, rows = read(whole)
    assert opened.layout.strings is not None
    (tmp_path / "cut.nsys-rep").write_bytes(whole.read_bytes()[: opened.layout.strings.offset])
    cut, left = read(tmp_path / "cut.nsys-rep")
    assert left == rows
    assert cut.strings == []
    assert any("names is lost" in note for note in cut.notes)


def test_names_are_found_in_a_report_that_lost_its_directory(tmp_path: Path) -> None:
    whole = report(SICK).read_bytes()
    (tmp_path / "cut.nsys-rep").write_bytes(whole[: -len(END_MARK)])
    cut, left = read(tmp_path / "cut.nsys-rep")
    opened, rows = read(report(SICK))
    assert left == rows
    assert cut.strings == opened.strings
    assert cut.target == opened.target
    assert cut.notes == ["the report has no directory at its end: the recording or the copy was cut short"]


@pytest.mark.parametrize("head", [b"", b"hello, this is text", b"PK\x03\x04", FILE_MARK[:10]])
def test_another_file_is_told_from_a_report(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(head)
    with pytest.raises(UnknownEvidenceError):
        open_report(tmp_path / "other")


def test_a_head_alone_is_a_damaged_report(tmp_path: Path) -> None:
    for content in (
        FILE_MARK,
        FILE_MARK + b"1.",
        FILE_MARK + b"1." + STREAM_MARK,
        FILE_MARK + b"1." + STREAM_MARK + b"\xff" * 30,
    ):
        (tmp_path / "short").write_bytes(content)
        with pytest.raises(DamagedEvidenceError):
            open_report(tmp_path / "short")


def test_a_report_cut_anywhere_gives_a_beginning_of_its_rows_or_one_line(tmp_path: Path) -> None:
    whole = take_apart(report(HEALTHY)).put_together(tmp_path / "whole.nsys-rep")
    opened, rows = read(whole)
    raw = whole.read_bytes()
    edges = {edge for part in opened.container.sections for edge in (part.offset, part.offset + part.size)}
    layout = opened.layout
    assert layout.strings is not None
    edges |= {
        layout.blocks_start,
        layout.blocks_end,
        layout.strings.offset,
        layout.strings.end,
        len(raw) - 16,
        len(raw) - 8,
    }
    sizes = {edge + step for edge in edges for step in (-1, 0, 1)} | set(range(0, len(raw), 9_973))
    for size in sorted(sizes):
        (tmp_path / "cut").write_bytes(raw[:size])
        if size < layout.blocks_start:
            with pytest.raises(EvidenceError, match=r"^[^\n]+$"):
                open_report(tmp_path / "cut")
            continue
        cut, left = read(tmp_path / "cut")
        assert cut.is_complete is (size >= len(raw))
        for table, found in left.items():
            assert found == rows[table][: len(found)]


def test_a_length_that_cannot_be_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    parts = made_of([kernel(100, 1)], STRINGS)
    raw = parts.put_together(tmp_path / "made.nsys-rep").read_bytes()
    opened = open_report(tmp_path / "made.nsys-rep")
    huge = wire.write_varint(1 << 62)
    at = opened.layout.blocks_start
    for hurt in (raw[:at] + huge + raw[at:], raw[:at] + wire.write_varint(20) + huge + raw[at:]):
        (tmp_path / "hurt").write_bytes(hurt)
        cut, rows = read(tmp_path / "hurt")
        assert not cut.is_complete
        assert rows == {}


def test_a_block_of_millions_of_empty_events_is_cut_off(tmp_path: Path) -> None:
    block = wire.write_sized(b"\x0a\x00" * (MAX_EVENTS_OF_A_CHUNK + 1000))
    path = made_of([], STRINGS, chunks=[block], info=message({1: 0})).put_together(tmp_path / "made.nsys-rep")
    opened, rows = read(path)
    assert not opened.is_complete
    assert rows == {}


def test_a_recording_without_thread_names_leaves_their_message_out(tmp_path: Path) -> None:
    gpu = message({1: {1: 1 << 48, 2: {7: {1: 0, 2: b"NVIDIA H200"}}}})
    opened, _ = read(made_of([kernel(100, 1)], STRINGS, tail=(gpu,)).put_together(tmp_path / "made.nsys-rep"))
    assert opened.is_complete
    assert [row["name"] for row in opened.target.gpus] == ["NVIDIA H200"]
    assert opened.thread_names == ()


def test_texts_of_processes_output_are_known_by_their_ids() -> None:
    table = StringTable([b"a"] * 60, (wire.Field(2, wire.BYTES, message({1: 9, 2: 53, 3: 18})),))
    assert table.output_ids() == {53, 18}


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("public/yoon_baseline_a.nsys-rep", (2022, 4, 2)),
        ("public/nevakrien_report1.nsys-rep", (2023, 4, 1)),
        ("public/jaxtb_pdl_2p2c.nsys-rep", (2025, 5, 1)),
        ("public/athrun_result.nsys-rep", (2026, 2, 1)),
    ],
)
def test_reports_of_other_years_are_whole(name: str, version: tuple[int, int, int]) -> None:
    opened, _ = read(shared_trace(name))
    assert opened.session.version == version
    assert opened.is_complete


def test_a_report_taken_apart_and_put_together_is_the_same_report(tmp_path: Path) -> None:
    parts = take_apart(report(SICK))
    again = take_apart(parts.put_together(tmp_path / "again.nsys-rep"))
    assert again == replace(parts, stream=replace(parts.stream, chunks=list(parts.stream.chunks)))
