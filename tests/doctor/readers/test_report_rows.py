"""Rows of a native report are the same however many are put together at a time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.case.batch import TableBatch
from doctor.formats.nsys_report.known_values import Numbers, together
from doctor.readers import registry, report_rows
from tests.support.samples import sample, trace_of

REPORTS = ("launch-bound-decode-nsys-report", "graph-decode-nsys-report")


def _tables(report: Path) -> dict[str, list[dict[str, object]]]:
    rows: dict[str, list[dict[str, object]]] = defaultdict(list)
    for part in registry.read(report):
        if isinstance(part, TableBatch):
            rows[part.table] += part.rows.to_pylist()
    return rows


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("group_rows", [100, 700])
def test_groups_of_any_size_hold_the_same_rows(name: str, group_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    report = trace_of(sample(name))
    expected = _tables(report)
    monkeypatch.setattr(report_rows, "GROUP_ROWS", group_rows)
    assert _tables(report) == expected
    assert len(expected["kernel"]) > 900


def test_whole_groups_are_exactly_as_large_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_rows, "GROUP_ROWS", 1000)
    sizes = [
        part.rows.num_rows
        for part in registry.read(trace_of(sample(REPORTS[0])))
        if isinstance(part, TableBatch) and part.table == "kernel"
    ]
    assert 1000 in sizes
    assert max(sizes) == 1000


_PART = st.lists(st.one_of(st.none(), st.integers(-(2**62), 2**62)), max_size=6)


def _numbers(cells: list[int | None]) -> Numbers | None:
    """What holds these cells; rows without a number of their own are None."""
    if cells and all(cell is None for cell in cells):
        return None
    values = np.asarray([cell for cell in cells if cell is not None], dtype=np.int64)
    where = np.asarray([cell is not None for cell in cells], dtype=np.bool_)
    return Numbers(values, None if where.all() else where)


def _cells(numbers: Numbers | None, count: int) -> list[int | None]:
    if numbers is None:
        return [None] * count
    where = np.ones(count, dtype=np.bool_) if numbers.where is None else numbers.where
    values = iter(numbers.values.tolist())
    return [next(values) if is_there else None for is_there in where.tolist()]


@given(st.lists(_PART, min_size=1, max_size=5), st.integers(0, 30))
def test_numbers_are_joined_and_cut_row_by_row(parts: list[list[int | None]], at: int) -> None:
    cells = [cell for part in parts for cell in part]
    at = min(at, len(cells))
    joined = together([_numbers(part) for part in parts], [len(part) for part in parts])
    assert _cells(joined, len(cells)) == cells
    if joined is not None:
        assert _cells(joined.of(slice(0, at)), at) == cells[:at]
        assert _cells(joined.of(slice(at, None)), len(cells) - at) == cells[at:]


def test_columns_that_nobody_wants_are_not_made() -> None:
    left_out = {"kernel": frozenset({"context_id", "registers_per_thread_count"}), "api_call": frozenset({"api"})}
    names: dict[str, set[str]] = defaultdict(set)
    for part in registry.read(trace_of(sample(REPORTS[0])), left_out=left_out):
        if isinstance(part, TableBatch):
            assert isinstance(part.rows, pa.RecordBatch | pa.Table)
            names[part.table] |= set(part.rows.schema.names)
    assert not names["kernel"] & left_out["kernel"]
    assert "static_shared_bytes" in names["kernel"]
    assert "api" not in names["api_call"]
    assert "context_id" in names["memcpy"]
