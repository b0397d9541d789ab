"""What the arrays behind the derived tables promise: numbers of groups, running maxima, medians, parts of any size."""

from __future__ import annotations

from contextlib import closing

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor import api
from doctor.case.arrays import columns
from doctor.case.derive import derive, derived_tables
from tests.support.samples import sample, trace_of

_IDS = st.sampled_from([None, -3, 0, 1, 2, 70_000, 1 << 40])
"""Ids that lie close together and far apart."""


def _numbered(rows: list[tuple[int | None, int | None]]) -> columns.Groups:
    with closing(duckdb.connect()) as connection:
        connection.execute("CREATE TABLE call (pid BIGINT, tid BIGINT)")
        if rows:
            connection.executemany("INSERT INTO call VALUES (?, ?)", rows)
        return columns.Scan(connection, "call").groups("pid", "tid")


def test_groups_are_numbered_in_order_with_null_last() -> None:
    found = _numbered([(7, 2), (None, 1), (7, 1), (3, 9), (7, 2)])
    assert found.keys == ((3, 9), (7, 1), (7, 2), (None, 1))
    assert found.code.tolist() == [2, 3, 1, 0, 2]


@given(st.lists(st.tuples(_IDS, _IDS), max_size=30))
def test_each_row_has_the_number_of_its_key(rows: list[tuple[int | None, int | None]]) -> None:
    found = _numbered(rows)
    assert [found.keys[one] for one in found.code.tolist()] == rows
    assert set(found.keys) == set(rows)


def test_no_rows_are_no_groups() -> None:
    assert _numbered([]).keys == ()


@given(st.lists(st.integers(-1, 6), max_size=20))
def test_gathered_values_are_those_that_indexing_gives(at: list[int]) -> None:
    values, index = np.arange(7) * 1.5, np.asarray(at, dtype=np.int32)
    assert columns.gather(values, index).tolist() == values[index].tolist()


def test_scattered_values_lie_where_they_were_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "IN_CACHE", 3)
    order = np.random.default_rng(1).permutation(10).astype(np.int32)
    into = np.full(10, -1)
    columns.scatter(np.arange(10), order, into=into)
    assert columns.gather(into, order).tolist() == list(range(10))


def test_a_running_maximum_starts_anew_in_each_group() -> None:
    values = np.asarray([5, 3, 9, 1, 4, 2])
    before = columns.reached_before(values, np.asarray([0, 3, 3, 6]))
    assert before.tolist() == [columns.UNKNOWN, 5, 5, columns.UNKNOWN, 1, 4]


def test_medians_are_those_of_each_group() -> None:
    random = np.random.default_rng(3)
    code, values = random.integers(0, 9, 500), random.integers(0, 2**31 - 1, 500)
    found = columns.medians(code, values, 10)
    assert found[:9].tolist() == [np.median(values[code == one]) for one in range(9)]
    assert np.isnan(found[9])


def test_rows_handed_over_in_parts_are_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {}
    for rows in (columns.SLICE_ROWS, 1_000):
        monkeypatch.setattr(columns, "SLICE_ROWS", rows)
        with closing(api.load(trace_of(sample("sync-per-token")))) as case:
            derive(case)
            tables[rows] = [case.execute(f'SELECT * FROM "{name}"').fetchall() for name in derived_tables()]
    whole, parted = tables.values()
    assert whole == parted
