from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import doctor
from doctor.api import load_evidence
from doctor.discovery import EvidencePath
from doctor.errors import CaseError, UnknownEvidenceError, UsageError
from tests.support.samples import sample, trace_of

SICK = "launch-bound-decode-nsys-report"


def test_diagnose_gives_the_findings_of_a_file() -> None:
    diagnosis = doctor.diagnose(trace_of(sample(SICK)))
    assert diagnosis.findings[0].rule == "host-dispatch-bound"
    assert diagnosis.worst is doctor.Severity.CRITICAL


def test_options_choose_the_rules() -> None:
    options = doctor.DiagnosisOptions(select=("host-dispatch-bound",))
    diagnosis = doctor.diagnose(trace_of(sample(SICK)), options=options)
    named = [finding.rule for finding in diagnosis.findings]
    named += [entry.rule for entry in diagnosis.ruled_out]
    named += [entry.rule for entry in diagnosis.not_run]
    assert set(named) == {"host-dispatch-bound"}


def test_load_gives_a_case_that_answers_queries() -> None:
    with closing(doctor.load(trace_of(sample(SICK)))) as case:
        ((kernels,),) = case.execute("SELECT count(*) FROM kernel").fetchall()
    assert kernels > 1000


def test_a_saved_case_opens_read_only(tmp_path: Path) -> None:
    saved = tmp_path / "case.duckdb"
    doctor.load(trace_of(sample(SICK)), save=saved).close()
    with closing(doctor.open_case(saved)) as case:
        assert case.execute("SELECT count(*) FROM source").fetchall() == [(1,)]


def test_a_case_that_could_not_be_filled_leaves_no_file(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no trace\n")
    evidence = [EvidencePath(text, text.name)]
    with pytest.raises(UnknownEvidenceError):
        load_evidence(evidence, tmp_path / "case.duckdb")
    assert list(tmp_path.iterdir()) == [text]


def test_a_case_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "case.duckdb").touch()
    with pytest.raises(CaseError, match="exists already"):
        doctor.load(trace_of(sample(SICK)), save=tmp_path / "case.duckdb")


def test_a_path_that_is_not_there_is_an_error_of_ours() -> None:
    with pytest.raises(UsageError, match="no-such-file"):
        doctor.diagnose("no-such-file")
