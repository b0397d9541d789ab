"""What the arrays behind the derived tables promise: numbers of groups, running maxima, medians, parts of any size."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from doctor import api
from doctor.case.arrays import columns
from doctor.case.derive import derive, derived_tables
from tests.support.samples import sample, trace_of


def test_groups_are_numbered_in_order_with_null_last() -> None:
    pid = pa.chunked_array([[7, None, 7], [3, 7]], pa.int64())
    tid = pa.chunked_array([[2, 1, 1, 9, 2]], pa.int64())
    found = columns.group([pid, tid])
    assert found.keys == ((3, 9), (7, 1), (7, 2), (None, 1))
    assert found.code.tolist() == [2, 3, 1, 0, 2]


def test_no_rows_are_no_groups() -> None:
    assert columns.group([pa.chunked_array([], pa.int64())]).keys == ()


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
