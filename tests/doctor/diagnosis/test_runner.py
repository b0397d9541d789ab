"""Rules over a case: chosen, run, and never the cause of a traceback."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from doctor import api
from doctor.case.store import create_case
from doctor.cli.main import main
from doctor.diagnosis.catalogue import load_catalogue
from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.outcome import Diagnosis
from doctor.diagnosis.runner import diagnose_case
from doctor.errors import CatalogueError, UsageError
from doctor.rule import About, Act, Cure, CureStep, Finding, Stage, Target
from tests.support.recorded import SavedCase, catalogue, saved_case
from tests.support.rule_files import rule, write_rule
from tests.support.samples import sample
from tests.support.trace_builder import Program, decode_step

RECORDED_TABLES = ("api_call", "device", "host_op", "kernel", "memcpy", "nvtx_range", "source", "text")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six eager decode steps with an operator around each."""
    program = Program()
    for _ in range(6):
        with program.annotation("decode_step"), program.annotation("aten::linear", "cpu_op"):
            decode_step(program)
    return program.write(tmp_path_factory.mktemp("trace") / "trace.json")


@pytest.fixture(scope="module")
def case(trace: Path) -> SavedCase:
    return saved_case(trace.parent, trace)


def named(diagnosis: Diagnosis) -> set[str]:
    return {entry.rule for group in (diagnosis.findings, diagnosis.ruled_out, diagnosis.not_run) for entry in group}


@pytest.mark.parametrize(
    "options",
    [DiagnosisOptions(select=("sync-in-step", "dispatch-bound")), DiagnosisOptions(ignore=("dispatch-bound",))],
    ids=["select", "ignore"],
)
def test_a_rule_that_does_not_exist_is_refused_by_name(case: SavedCase, options: DiagnosisOptions) -> None:
    with pytest.raises(UsageError, match="no rule is called dispatch-bound: see `doctor rules`"):
        case.diagnosis(options)


def test_select_runs_those_alone_and_ignore_all_others(case: SavedCase) -> None:
    only = case.diagnosis(DiagnosisOptions(select=("host-dispatch-bound", "cudagraph-off")))
    assert only.findings[0].rule == "host-dispatch-bound"
    assert named(only) <= {"host-dispatch-bound", "cudagraph-off"}
    without = case.diagnosis(DiagnosisOptions(ignore=("host-dispatch-bound",)))
    assert "host-dispatch-bound" not in named(without)


@pytest.mark.parametrize("table", RECORDED_TABLES)
def test_no_rule_fails_where_a_table_is_empty(case: SavedCase, table: str) -> None:
    diagnosis = case.diagnosis(change=lambda con: con.execute(f'DELETE FROM "{table}"'))
    without_evidence = {rule.about.id for rule in catalogue() if table in rule.about.reads}
    assert without_evidence <= {entry.rule for entry in diagnosis.not_run}
    assert named(diagnosis)


def test_every_rule_of_the_time_line_says_what_it_needs_where_nothing_was_recorded() -> None:
    with closing(create_case()) as empty:
        diagnosis = diagnose_case(empty, load_catalogue(), DiagnosisOptions())
    assert diagnosis.findings == ()
    assert diagnosis.window is None
    assert diagnosis.replay is None
    needs = {entry.rule: entry.needs for entry in diagnosis.not_run}
    assert "nsys-report" in needs["host-dispatch-bound"]
    assert "kineto" in needs["sync-in-step"]


def test_a_rule_whose_table_is_missing_is_not_run(case: SavedCase) -> None:
    about = About("house-rule", "A rule of the house", Stage.SPECIFIC, ("no_such_table",), ("engine-log",))
    with closing(api.load(case.path.parent / "trace.json")) as loaded:
        diagnosis = diagnose_case(loaded, (replace(rule("house-rule"), about=about),), DiagnosisOptions())
    assert [(entry.rule, entry.needs) for entry in diagnosis.not_run] == [("house-rule", ("engine-log",))]
    assert diagnosis.findings == ()


def test_a_users_folder_adds_a_rule(trace: Path, tmp_path: Path) -> None:
    diagnosis = api.diagnose(trace, rules=write_rule(tmp_path / "rules", "house-rule"))
    assert {"house-rule", "host-dispatch-bound"} <= named(diagnosis)
    [own] = [finding for finding in diagnosis.findings if finding.rule == "house-rule"]
    assert own.summary == "390 kernels"


def test_a_users_rule_replaces_ours_of_the_same_name(trace: Path, tmp_path: Path) -> None:
    folder = write_rule(tmp_path / "rules", "host-dispatch-bound")
    [replaced] = [f for f in api.diagnose(trace, rules=folder).findings if f.rule == "host-dispatch-bound"]
    assert replaced.title == "A rule of the house"


BROKEN = {
    "sql": {"sql": "SELECT no_such_column FROM device_op"},
    "too few columns": {"sql": "SELECT 1, 2"},
    "a row it did not expect": {"judge": 'raise KeyError("kernel_count")'},
    "an attribute": {"judge": "return row.no_such_field"},
    "an empty message": {"judge": "raise ValueError"},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_rule_of_a_user_is_named_in_one_line(
    broken: dict[str, str], trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_rule(tmp_path / "rules", "house-rule", **broken)
    assert main(["diagnose", str(trace), "--rules", str(folder), "--no-progress"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "the rule house-rule is wrong" in err


def test_a_broken_cure_of_a_user_is_refused(case: SavedCase) -> None:
    cure = Cure((CureStep(Target.HOST_CALL, Act.REMOVE, "SELECT no_such_column FROM thread_call"),))
    broken = replace(rule("house-rule"), judge=lambda row: Finding("summary", (), cure=cure))
    with (
        closing(api.load(case.path.parent / "trace.json")) as loaded,
        pytest.raises(CatalogueError, match="no_such_column"),
    ):
        diagnose_case(loaded, (broken,), DiagnosisOptions())


def test_a_case_gives_the_same_diagnosis_twice(trace: Path) -> None:
    with closing(api.load(trace)) as loaded:
        first = diagnose_case(loaded, load_catalogue(), DiagnosisOptions())
        assert diagnose_case(loaded, load_catalogue(), DiagnosisOptions()) == first


def test_what_two_signs_measure_alike_is_told_once() -> None:
    [finding] = [one for one in api.diagnose(sample("oom-fragmentation")).findings if one.rule == "fragmentation"]
    told = [(entry.name, entry.value) for entry in finding.evidence]
    assert len(told) > 4
    assert len(told) == len(set(told))
