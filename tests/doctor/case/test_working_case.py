"""Where a case lives that nobody keeps: small evidence in memory, large evidence in a file that goes with it."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from doctor.case.store import LARGE_EVIDENCE_BYTES, create_working_case


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
