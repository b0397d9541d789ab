"""Damage of any kind gives rows, notes or one line; never a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doctor.errors import EvidenceError
from doctor.formats.nsys_report.report import open_report
from tests.support.native_reports import HEALTHY, as_bytes, beginning

BOUNDED = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NUM_EVENTS = 600
ORIGINAL = as_bytes(beginning(HEALTHY, NUM_EVENTS))


def read(path: Path) -> tuple[bool, list[str], dict[str, int]]:
    opened = open_report(path)
    rows: dict[str, int] = {}
    for part in opened.event_tables():
        rows[part.table] = rows.get(part.table, 0) + part.rows.num_rows
    return opened.is_complete, opened.notes, rows


def survives(path: Path, raw: bytes) -> None:
    path.write_bytes(raw)
    try:
        is_complete, notes, rows = read(path)
    except EvidenceError as error:
        message = error.message
    else:
        message = "read"
        assert is_complete or notes
        assert sum(rows.values()) <= NUM_EVENTS
    assert message
    assert "\n" not in message


@given(st.lists(st.tuples(st.integers(0, len(ORIGINAL) - 1), st.integers(0, 7)), min_size=1, max_size=12))
@BOUNDED
def test_flipped_bits_are_survived(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    raw = bytearray(ORIGINAL)
    for position, bit in flips:
        raw[position] ^= 1 << bit
    survives(tmp_path / "flipped", bytes(raw))


@given(st.integers(0, len(ORIGINAL) - 1), st.integers(1, 8192), st.sampled_from([b"\x00", b"\xff", b"\x7f", b"\x80"]))
@BOUNDED
def test_overwritten_pages_are_survived(tmp_path: Path, position: int, size: int, byte: bytes) -> None:
    raw = bytearray(ORIGINAL)
    raw[position : position + size] = byte * len(raw[position : position + size])
    survives(tmp_path / "overwritten", bytes(raw))


@given(st.integers(0, len(ORIGINAL) - 1), st.integers(0, 4096), st.binary(max_size=64))
@BOUNDED
def test_bytes_taken_out_or_put_in_are_survived(tmp_path: Path, position: int, size: int, inserted: bytes) -> None:
    survives(tmp_path / "shifted", ORIGINAL[:position] + inserted + ORIGINAL[position + size :])


@given(st.lists(st.tuples(st.integers(4, 60_000), st.integers(0, 255)), min_size=1, max_size=30))
@BOUNDED
def test_changed_bytes_inside_an_unpacked_block_are_survived(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    parts = beginning(HEALTHY, NUM_EVENTS)
    block = bytearray(next(iter(parts.stream.chunks)))
    for position, byte in changes:
        block[position % len(block)] = byte
    survives(tmp_path / "inside", as_bytes(parts.with_stream(chunks=[bytes(block)])))


@pytest.mark.parametrize("size", [0, 1, 30, 38, 100, 477, 2000, 30_000])
def test_a_beginning_of_any_length_is_survived(tmp_path: Path, size: int) -> None:
    survives(tmp_path / "begun", ORIGINAL[:size])
