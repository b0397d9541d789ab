"""A verdict hangs on what the run did: not on annotations, on the names of kernels, or on the speed of the clock."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from doctor.diagnosis.outcome import Diagnosis
from doctor.rule import Severity
from tests.support.perturbed import with_other_names_and_ids, without_annotations
from tests.support.recorded import Change, SavedCase, diagnosis_of, saved_case
from tests.support.traces import SAMPLES, traces_folder

SAMPLE_RECORDINGS = (
    "launch-bound-decode-nsys-report/launch-sick.nsys-rep",
    "launch-bound-decode-torch-trace/launch-sick.pt.trace.json.gz",
    "graph-decode-nsys-report/healthy-fixed.nsys-rep",
    "graph-decode-torch-trace/healthy-fixed.pt.trace.json.gz",
    "scheduler-pause/hostgap-sick.nsys-rep",
    "pageable-copies/h2d-sick.nsys-rep",
    "sync-trap/synctrap-sick.nsys-rep",
    "eager-attention/attention-sick.nsys-rep",
    "fp32/fp32trap-sick.nsys-rep",
    "growing-kv/kvcat-sick.nsys-rep",
    "engine-no-cuda-graphs/eager-decode.pt.trace.json.gz",
)
SHARED_RECORDINGS = (
    "h200/hostgap-sick.pt.trace.json.gz",
    "h200/h2d-sick.pt.trace.json.gz",
    "h200/launch-fixed.sqlite.gz",
    "h200x2/scaling-sick.sqlite.gz",
    "h200x2/straggler-sick.sqlite.gz",
)
TIMED_TABLES = ("kernel", "memcpy", "memset", "graph_trace", "api_call", "nvtx_range", "host_op")


def _scaled(case: duckdb.DuckDBPyConnection, factor: float) -> None:
    for table in TIMED_TABLES:
        case.execute(
            f"UPDATE {table} SET start_ns = (start_ns * {factor})::BIGINT, end_ns = (end_ns * {factor})::BIGINT"
        )


def at_half_the_times(case: duckdb.DuckDBPyConnection) -> None:
    _scaled(case, 0.5)


def at_twice_the_times(case: duckdb.DuckDBPyConnection) -> None:
    _scaled(case, 2.0)


CHANGES: tuple[Change, ...] = (without_annotations, with_other_names_and_ids, at_half_the_times, at_twice_the_times)


@dataclass(frozen=True)
class Verdict:
    """What must not change: the first finding and its band, and what else is grave."""

    first: str | None
    severity: Severity | None

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> Verdict:
        """The first finding that is more than a remark."""
        named = [finding for finding in diagnosis.findings if finding.severity > Severity.LOW]
        return cls(named[0].rule, named[0].severity) if named else cls(None, None)


def recordings() -> list[object]:
    """The samples, and the shared recordings where they are."""
    folder = traces_folder()
    shared = [folder / name for name in SHARED_RECORDINGS if (folder / name).exists()] if folder else []
    return [
        pytest.param(path, id=f"{path.parent.name}/{path.name}")
        for path in (*(SAMPLES / name for name in SAMPLE_RECORDINGS), *shared)
    ]


@pytest.fixture(scope="module", params=recordings())
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SavedCase:
    path: Path = request.param
    return saved_case(tmp_path_factory.mktemp("case"), path)


@pytest.mark.parametrize("change", [without_annotations, with_other_names_and_ids], ids=lambda change: change.__name__)
def test_a_win_at_the_edge_of_what_is_measurable_hangs_on_no_name(
    change: Change, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # it was measured at 1.05, where a finding turns low: other times may turn it, names may not
    case = saved_case(tmp_path_factory.mktemp("case"), SAMPLES / "sync-per-token/synctok-sick.nsys-rep")
    assert Verdict.of(case.diagnosis(change=change)).first == Verdict.of(case.diagnosis()).first == "sync-in-step"


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_first_finding_and_its_severity_stay(case: SavedCase, change: Change) -> None:
    assert Verdict.of(case.diagnosis(change=change)) == Verdict.of(case.diagnosis())


ONE_OF_EACH_KIND = (
    "scheduler-pause/hostgap-sick.nsys-rep",
    "launch-bound-decode-torch-trace/launch-sick.pt.trace.json.gz",
    "engine-small-micro-batches/sick.nsys-rep",
)


def at_three_times_the_times(case: duckdb.DuckDBPyConnection) -> None:
    _scaled(case, 3.0)


def five_hours_later(case: duckdb.DuckDBPyConnection) -> None:
    for table in TIMED_TABLES:
        case.execute(f"UPDATE {table} SET start_ns = start_ns + 18000000000000, end_ns = end_ns + 18000000000000")


def without_one_call_in_a_hundred(case: duckdb.DuckDBPyConnection) -> None:
    [(before,)] = case.execute("SELECT count(*) FROM api_call").fetchall()
    case.execute("DELETE FROM api_call WHERE hash(start_ns) % 100 = 7")
    [(after,)] = case.execute("SELECT count(*) FROM api_call").fetchall()
    assert 0 < before - after < 0.03 * before


@pytest.mark.parametrize(
    "change", [at_three_times_the_times, five_hours_later, without_one_call_in_a_hundred], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_another_clock_and_a_few_lost_calls_leave_the_first_finding(
    name: str, change: Change, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = saved_case(tmp_path_factory.mktemp("case"), SAMPLES / name)
    assert Verdict.of(case.diagnosis(change=change)) == Verdict.of(case.diagnosis())


def _with_rows_reversed(recording: Path, folder: Path) -> Path:
    """The recording, the last event first: a trace's list, or the rows of every table of an export."""
    copy = folder / "reversed" / recording.name.removesuffix(".gz")
    copy.parent.mkdir()
    with gzip.open(recording) as packed:
        copy.write_bytes(packed.read())
    if copy.suffix == ".json":
        trace = json.loads(copy.read_bytes())
        trace["traceEvents"].reverse()
        copy.write_text(json.dumps(trace), "utf-8")
        return copy
    with closing(sqlite3.connect(copy)) as export:
        tables = [name for (name,) in export.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            export.execute(f'CREATE TEMP TABLE backwards AS SELECT * FROM "{table}" ORDER BY rowid DESC')
            export.execute(f'DELETE FROM "{table}"')
            export.execute(f'INSERT INTO "{table}" SELECT * FROM backwards ORDER BY rowid')
            export.execute("DROP TABLE backwards")
        export.commit()
    return copy


@pytest.mark.parametrize(
    "name",
    [
        "launch-bound-decode-torch-trace/launch-sick.pt.trace.json.gz",
        "graph-decode-sqlite-export/healthy-fixed.sqlite.gz",
    ],
)
def test_the_order_of_rows_in_a_recording_tells_nothing(name: str, tmp_path: Path) -> None:
    recording = SAMPLES / name
    backwards = diagnosis_of(_with_rows_reversed(recording, tmp_path))
    assert _findings(backwards) == _findings(diagnosis_of(recording))


def test_a_rank_that_is_there_under_two_names_counts_once(tmp_path: Path) -> None:
    recording = SAMPLES / "launch-bound-decode-torch-trace/launch-sick.pt.trace.json.gz"
    copy = tmp_path / "rank-of-another-name.pt.trace.json.gz"
    shutil.copyfile(recording, copy)
    together = diagnosis_of(recording, copy)
    assert _findings(together) == _findings(diagnosis_of(recording))
    assert any("not diagnosed" in note for file in together.evidence for note in file.notes)


def _findings(diagnosis: Diagnosis) -> list[tuple[str, Severity, float | None]]:
    return [
        (finding.rule, finding.severity, finding.gain.speedup_expected if finding.gain else None)
        for finding in diagnosis.findings
    ]
