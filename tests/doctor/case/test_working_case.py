"""Where a case lives that nobody keeps: small evidence in memory, large evidence in a file that goes with it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from doctor.case.diagnosis_queries import select
from doctor.case.replay_queries import read_rows
from doctor.case.store import LARGE_EVIDENCE_BYTES, create_working_case, shut_in

TOO_LARGE = "SELECT len(list(i)) FROM range(8000000) AS numbers(i)"


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_small_evidence_needs_no_file(temporary_folder: Path) -> None:
    with closing(create_working_case(LARGE_EVIDENCE_BYTES - 1)) as case:
        assert case.execute("SELECT count(*) FROM kernel").fetchall() == [(0,)]
        assert list(temporary_folder.iterdir()) == []


def test_large_evidence_lies_in_a_file_and_nothing_is_left_of_it(temporary_folder: Path) -> None:
    case = create_working_case(LARGE_EVIDENCE_BYTES)
    case.execute("INSERT INTO text SELECT i, i::TEXT FROM range(100000) AS numbers(i)")
    [folder] = temporary_folder.iterdir()
    assert (folder / "case.duckdb").is_file()
    case.close()
    del case
    assert list(temporary_folder.iterdir()) == []


def test_large_evidence_may_not_fill_the_memory(temporary_folder: Path) -> None:
    with closing(create_working_case(LARGE_EVIDENCE_BYTES)) as case:
        assert case.execute("SELECT current_setting('memory_limit')").fetchall() == [("512.0 MiB",)]


@pytest.fixture
def small_case(temporary_folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A case whose queries may take very little memory."""
    with closing(create_working_case(LARGE_EVIDENCE_BYTES)) as case:
        case.execute("SET memory_limit = '32 MiB'")
        yield case


def test_a_rule_that_needs_more_memory_than_was_set_aside_gets_it(small_case: duckdb.DuckDBPyConnection) -> None:
    assert select(small_case, TOO_LARGE, {}) == [(8_000_000,)]


def test_a_cure_that_needs_more_memory_than_was_set_aside_gets_it(small_case: duckdb.DuckDBPyConnection) -> None:
    ids, _ = read_rows(small_case, TOO_LARGE, {})
    assert ids.tolist() == [8_000_000]


def test_a_case_from_a_stranger_keeps_its_bounds(small_case: duckdb.DuckDBPyConnection) -> None:
    shut_in(small_case)
    with pytest.raises(duckdb.OutOfMemoryException):
        select(small_case, TOO_LARGE, {})
