"""A case that `--save` kept is evidence itself."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import doctor
from doctor.api import load_evidence
from doctor.case.derive import WindowChoice, derive
from doctor.cli.main import main
from doctor.discovery import EvidencePath
from doctor.errors import CaseError, UsageError
from tests.support.samples import sample, trace_of

TRACE = trace_of(sample("launch-bound-decode-nsys-report"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("case") / "kept.duckdb"
    with closing(doctor.load(TRACE, save=path)) as case:
        derive(case)
    return path


def test_a_saved_case_gives_the_diagnosis_of_its_evidence(saved: Path) -> None:
    before = saved.read_bytes()
    again = doctor.diagnose(saved)
    assert again == doctor.diagnose(TRACE)
    assert saved.read_bytes() == before


def test_another_window_is_taken_from_a_copy(saved: Path) -> None:
    before = saved.read_bytes()
    options = doctor.DiagnosisOptions(range_name="decode_step")
    window = doctor.diagnose(saved, options=options).window
    assert window is not None
    assert window.chosen_by.startswith("--range decode_step")
    assert saved.read_bytes() == before


def test_a_case_that_was_never_derived_is_derived_in_a_copy(tmp_path: Path) -> None:
    doctor.load(TRACE, save=tmp_path / "raw.duckdb").close()
    assert doctor.diagnose(tmp_path / "raw.duckdb").findings[0].rule == "host-dispatch-bound"


def test_a_read_only_case_refuses_tables_of_another_window(saved: Path) -> None:
    with closing(doctor.open_case(saved)) as case, pytest.raises(CaseError, match="cannot be derived"):
        derive(case, WindowChoice(range_name="decode_step"))


def test_a_saved_case_stands_alone(saved: Path) -> None:
    evidence = [EvidencePath(path, path.name) for path in (saved, TRACE)]
    with pytest.raises(UsageError, match="diagnosed alone"):
        load_evidence(evidence)


def test_a_saved_case_is_not_saved_again(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a saved case already"):
        doctor.load(saved, save=tmp_path / "again.duckdb")


def test_another_duckdb_file_is_told_from_a_case(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import duckdb

    duckdb.connect(str(tmp_path / "other.duckdb")).close()
    assert main(["diagnose", str(tmp_path / "other.duckdb")]) == 2
    assert "is not a case file" in capfd.readouterr().err
