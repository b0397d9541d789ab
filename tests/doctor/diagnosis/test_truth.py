"""The verdict on shared recordings whose cause is known, in every format they were kept in."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from doctor.api import load
from doctor.case.derive import derive
from doctor.diagnosis.outcome import Diagnosis
from doctor.rule import Severity
from tests.support.recorded import diagnosis_of, finding_of
from tests.support.trace_builder import GEMM, HEAD_GEMM, Program
from tests.support.traces import shared_trace

REPORT, EXPORT, TORCH = "nsys-rep", "sqlite.gz", "pt.trace.json.gz"
DISPATCH = {"host-dispatch-bound", "cudagraph-off", "tiny-kernels"}


@dataclass(frozen=True)
class Truth:
    """A case of the H200 program, what was done to it, and the formats it is kept in.

    Attributes:
        first: rule that must come first; None where nothing may be found above low.
        formats: file name endings.
        may_follow: rules that may stand behind it above medium.
        ruled_out: rules that must be cleared.
    """

    case: str
    first: str | None
    formats: tuple[str, ...]
    may_follow: frozenset[str] = frozenset(DISPATCH)
    ruled_out: frozenset[str] = frozenset()


TRUTHS = (
    Truth("launch-sick", "host-dispatch-bound", (REPORT, EXPORT, TORCH)),
    Truth("h2d-sick", "pageable-copies", (REPORT, EXPORT, TORCH)),
    Truth("hostgap-sick", "step-gap-scheduler", (REPORT, EXPORT, TORCH)),
    Truth("synctrap-sick", "host-dispatch-bound", (REPORT, EXPORT), ruled_out=frozenset({"sync-in-step"})),
    Truth("healthy-fixed", None, (REPORT, EXPORT, TORCH), may_follow=frozenset()),
    Truth("launch-fixed", None, (REPORT, EXPORT), may_follow=frozenset()),
    # eager decodes: what was done to the sick ones is gone, what they have in common stays
    Truth("h2d-fixed", "host-dispatch-bound", (REPORT, EXPORT)),
    Truth("hostgap-fixed", "host-dispatch-bound", (REPORT, EXPORT)),
    Truth("synctrap-fixed", "host-dispatch-bound", (REPORT, EXPORT)),
)
RECORDINGS = [pytest.param(truth, ending, id=f"{truth.case}.{ending}") for truth in TRUTHS for ending in truth.formats]


def grave(diagnosis: Diagnosis) -> set[str]:
    """Rules found above medium."""
    return {finding.rule for finding in diagnosis.findings if finding.severity > Severity.MEDIUM}


def above_low(diagnosis: Diagnosis) -> list[str]:
    return [finding.rule for finding in diagnosis.findings if finding.severity > Severity.LOW]


@pytest.mark.parametrize(("truth", "ending"), RECORDINGS)
def test_the_first_finding_is_what_was_done(truth: Truth, ending: str) -> None:
    diagnosis = diagnosis_of(shared_trace(f"h200/{truth.case}.{ending}"))
    if truth.first is None:
        assert above_low(diagnosis) == []
    else:
        assert diagnosis.findings[0].rule == truth.first
        assert diagnosis.findings[0].severity is Severity.CRITICAL
    assert grave(diagnosis) <= truth.may_follow | {truth.first}
    assert truth.ruled_out <= {entry.rule for entry in diagnosis.ruled_out}
    assert diagnosis.replay is not None
    assert diagnosis.replay.is_trusted


@pytest.mark.parametrize("ending", [REPORT, EXPORT])
def test_the_pause_is_named_by_its_range(ending: str) -> None:
    diagnosis = diagnosis_of(shared_trace(f"h200/hostgap-sick.{ending}"))
    assert "schedule takes 30.3 ms each time" in diagnosis.findings[0].title


@pytest.mark.parametrize(
    "name", [f"h200/{truth.case}" for truth in TRUTHS] + ["h200x2/scaling-sick", "h200x2/straggler-sick"]
)
def test_a_report_and_its_export_give_the_same_diagnosis(name: str) -> None:
    report, export = (diagnosis_of(shared_trace(f"{name}.{ending}")) for ending in (REPORT, EXPORT))
    assert report.findings == export.findings
    assert report.ruled_out == export.ruled_out
    assert report.window == export.window
    assert report.vitals == export.vitals


def rank_files(case: str) -> tuple[Path, ...]:
    return tuple(shared_trace(f"h200x2/{case}-sick.rank{rank}.{TORCH}") for rank in (0, 1))


def test_two_ranks_that_wait_for_each_others_launches_are_bound_by_dispatch() -> None:
    for diagnosis in (
        diagnosis_of(shared_trace("h200x2/scaling-sick.nsys-rep")),
        diagnosis_of(*rank_files("scaling")),
    ):
        assert diagnosis.findings[0].rule == "host-dispatch-bound"
        assert diagnosis.findings[0].severity is Severity.CRITICAL
        assert grave(diagnosis) <= DISPATCH


def test_a_rank_that_is_late_is_named_and_neither_communication_nor_dispatch_is_blamed() -> None:
    for diagnosis in (
        diagnosis_of(shared_trace("h200x2/straggler-sick.nsys-rep")),
        diagnosis_of(*rank_files("straggler")),
    ):
        assert diagnosis.findings[0].rule == "straggler-rank"
        assert "rank 1" in diagnosis.findings[0].title
        assert grave(diagnosis) == {"straggler-rank"}


def test_copies_that_fill_the_run_are_what_it_is_bound_by() -> None:
    path = shared_trace("public/nsysai_h100_2gpu_1s.sqlite.gz")
    diagnosis = diagnosis_of(path)
    assert diagnosis.findings[0].rule == "offload-bandwidth-bound"
    assert diagnosis.vitals["gpu_busy"] == pytest.approx(0.99, abs=0.01)
    with closing(load(path)) as case:
        derive(case)
        copied = case.execute(
            "SELECT device_id, sum(end_ns - start_ns) / 1e6 FROM device_op WHERE copy_kind = 'htod' GROUP BY device_id"
        ).fetchall()
    assert [round(ms, -1) for _, ms in copied] == [920, 920]


def test_a_gap_behind_a_stray_event_is_no_idle_time_of_the_run() -> None:
    diagnosis = diagnosis_of(shared_trace("public/tracelens_sglang_Qwen3-8B_decode.json.gz"))
    stray = finding_of(diagnosis, "stray-event-window")
    numbers = {evidence.name: evidence.value for evidence in stray.evidence}
    assert numbers["gap"] == pytest.approx(463, abs=1)
    assert float(numbers["share of all idle time"]) > 0.998
    assert diagnosis.vitals["gpu_busy"] == pytest.approx(0.94, abs=0.01)
    assert above_low(diagnosis) == []
    assert diagnosis.window is not None
    assert "stray event cut" in diagnosis.window.chosen_by


ALL_REDUCE_KERNELS = (
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 4>(vllm::RankData*, vllm::RankSignals)",
    "void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
)


@pytest.mark.parametrize("name", ALL_REDUCE_KERNELS, ids=["one stage", "two stages", "multimem"])
def test_custom_all_reduces_of_vllm_are_communication(name: str, tmp_path: Path) -> None:
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 64)
        for _ in range(8):
            program.launch(GEMM, 30.0)
            program.launch(name, 10.0)
        program.launch(HEAD_GEMM, 80.0)
        program.wait()
    vitals = diagnosis_of(program.write(tmp_path / "trace.json")).vitals
    exposed, busy = vitals["exposed_communication"], vitals["gpu_busy"]
    assert exposed is not None
    assert busy is not None
    # 8 x 10 us of communication beside 8 x 30 + 80 us of computation
    assert exposed / busy == pytest.approx(80 / 400, abs=0.01)


def test_work_hidden_in_a_graph_row_is_busy_time() -> None:
    path = shared_trace("h200/healthy-fixed.nsys-rep")
    with closing(load(path)) as case:
        derive(case)
        [(hidden_ns,)] = case.execute("SELECT sum(end_ns - start_ns)::BIGINT FROM graph_trace").fetchall()
        [(busy_ns, window_ns)] = case.execute(
            "SELECT busy_ns, until_ns - from_ns FROM device_busy, steady_window"
        ).fetchall()
    assert hidden_ns > 0.5 * window_ns
    assert busy_ns > hidden_ns
    assert busy_ns / window_ns > 0.8
