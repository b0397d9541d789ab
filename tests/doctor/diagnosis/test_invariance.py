"""A verdict hangs on what the run did: not on annotations, on the names of kernels, or on the speed of the clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from doctor.diagnosis.outcome import Diagnosis
from doctor.rule import Severity
from tests.support.perturbed import with_other_names_and_ids, without_annotations
from tests.support.recorded import Change, SavedCase, saved_case
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
