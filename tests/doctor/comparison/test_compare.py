from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.compare import _side
from doctor.cli.main import main
from doctor.comparison.changes import compare
from doctor.comparison.kernels import spelled_alike
from doctor.reports.comparison_page import comparison_page
from doctor.reports.presentation import Presentation
from tests.support.samples import sample
from tests.support.trace_builder import GEMM, HEAD_GEMM, Program, decode_step
from tests.support.traces import shared_trace


def written(program: Program, path: Path) -> str:
    return str(program.write(path))


def eager(path: Path) -> str:
    program = Program()
    for _ in range(6):
        decode_step(program)
    return written(program, path)


def slower(path: Path, gemm_us: float) -> str:
    """Decode by graphs whose matrix products take this long."""
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 64)
        program.graph([(GEMM, gemm_us)] * 64 + [(HEAD_GEMM, 12.0)])
        program.wait()
    return written(program, path)


def graphed(path: Path) -> str:
    program = Program()
    for _ in range(6):
        program.copy("HtoD pinned", 64)
        program.graph([(GEMM, 9.0)] * 64 + [(HEAD_GEMM, 12.0)])
        program.wait()
    return written(program, path)


def bench(path: Path, tokens_per_s: float, schema: str = "engine.bench/1") -> str:
    repeats = [100 / tokens_per_s * (1 + noise) for noise in (0.0, 0.01, -0.01, 0.02)]
    figures = {"output_tokens_per_s": tokens_per_s, "ttft_s": {"p50": 0.5}, "repeats": repeats}
    path.write_text(json.dumps({"schema": schema, **figures}))
    return str(path)


def test_a_cure_shows_as_a_finding_that_is_gone_and_a_shorter_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", eager(tmp_path / "a.json"), graphed(tmp_path / "b.json"), "--format", "json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert "host-dispatch-bound" in document["gone"]
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert figures["step_seconds"]["ratio"] < 0.7
    assert figures["gpu_busy"]["ratio"] > 2


def test_a_run_against_itself_changes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = eager(tmp_path / "a.json")
    assert main(["compare", path, path, "--format", "json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["gone"] == document["new"] == document["kernels"] == []
    assert all(figure["ratio"] in {1.0, None} for figure in document["figures"])
    assert main(["compare", path, path]) == 0
    page = capfd.readouterr().out
    assert page.startswith("No difference: every figure of the two is the same.")
    assert "faster" not in page


def compared(capfd: pytest.CaptureFixture[str], before: str | Path, after: str | Path) -> dict[str, Any]:
    assert main(["compare", str(before), str(after), "--format", "json"]) == 0
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    return document


def test_a_finding_is_not_gone_where_the_other_evidence_could_not_show_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = compared(capfd, eager(tmp_path / "a.json"), sample("oom-fragmentation"))
    assert document["gone"] == document["new"] == []
    told = {(one["side"], one["rule"]): one["needs"] for one in document["unseen"]}
    assert "kineto" in told["after", "host-dispatch-bound"]
    assert "oom-text" in told["before", "fragmentation"]


def test_a_finding_is_not_gone_where_the_calls_that_show_it_were_not_recorded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    full = Path(eager(tmp_path / "a.json"))
    document = json.loads(full.read_text("utf-8"))
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") != "cuda_runtime"]
    (tmp_path / "b.json").write_text(json.dumps(document))
    told = compared(capfd, full, tmp_path / "b.json")
    assert "host-dispatch-bound" not in told["gone"]
    [one] = [one for one in told["unseen"] if one["rule"] == "host-dispatch-bound"]
    assert (one["side"], one["because"], one["needs"]) == ("after", "it holds no calls of the host", [])


def test_a_finding_on_kernels_is_not_gone_where_graphs_hide_them(capfd: pytest.CaptureFixture[str]) -> None:
    told = compared(capfd, sample("eager-attention"), sample("graph-decode-nsys-report"))
    [one] = [one for one in told["unseen"] if one["rule"] == "attention-not-fused"]
    assert (one["side"], one["because"]) == ("after", "its kernels are hidden inside CUDA graphs")
    assert "attention-not-fused" not in told["gone"]


def with_layers(path: Path, layers: int, device: str) -> str:
    program = Program()
    for _ in range(6):
        decode_step(program, layers=layers)
    text = program.write(path).read_text("utf-8")
    document = json.loads(text)
    document["deviceProperties"] = [{"id": 0, "name": device}]
    path.write_text(json.dumps(document))
    return str(path)


def test_runs_of_another_model_or_device_are_not_alike(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small = with_layers(tmp_path / "a.json", 8, "NVIDIA H200")
    large, moved = (
        with_layers(tmp_path / "b.json", 16, "NVIDIA H200"),
        with_layers(tmp_path / "c.json", 8, "NVIDIA A100"),
    )
    same, longer = compared(capfd, small, small), compared(capfd, small, large)
    assert (same["unlike"], same["doubts"], longer["unlike"]) == ([], [], [])
    [work] = longer["doubts"]
    assert re.fullmatch(r"(\d+) matrix products a step in BEFORE, (\d+) in AFTER", work)
    assert compared(capfd, small, moved)["unlike"] == ["another GPU (NVIDIA H200 in BEFORE, NVIDIA A100 in AFTER)"]
    assert main(["compare", small, large, "--fail-on-regression", "5%"]) == 1
    printed = capfd.readouterr()
    assert printed.out.startswith(f"Perhaps not the same work: {work}.")
    assert f"doctor: the bar is put on runs that may not be alike: {work}" in printed.err


def test_a_cure_that_leaves_the_work_as_it_is_is_alike(capfd: pytest.CaptureFixture[str]) -> None:
    sick, cured = (shared_trace(f"h200/{name}.nsys-rep") for name in ("h2d-sick", "h2d-fixed"))
    told = compared(capfd, sick, cured)
    assert told["unlike"] == told["doubts"] == []
    assert told["gone"] == ["pageable-copies"]


def test_benchmarks_of_another_number_of_tokens_are_not_alike(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, tokens in (("a.json", 3072), ("b.json", 1024)):
        figures = {"schema": "engine.bench/1", "output_tokens": tokens, "seconds": 1.0}
        (tmp_path / name).write_text(json.dumps(figures))
    [reason] = compared(capfd, tmp_path / "a.json", tmp_path / "b.json")["unlike"]
    assert reason == "another amount of work (3,072 output tokens in BEFORE, 1,024 in AFTER)"


def test_kernels_are_matched_by_name_and_shape_and_a_regression_exits_with_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = slower(tmp_path / "a.json", 9.0), slower(tmp_path / "b.json", 18.0)
    assert main(["compare", *paths, "--format", "json", "--fail-on-regression", "5%"]) == 1
    printed = capfd.readouterr()
    assert "slower, over the bar of 5.0%" in printed.err
    (kernel,) = json.loads(printed.out)["kernels"]
    assert kernel["name"] == GEMM
    assert kernel["grid_blocks"] is not None
    assert kernel["before_count"] == kernel["after_count"]
    assert kernel["after_step_ns"] == pytest.approx(64 * 18_000, rel=0.2)
    assert kernel["after_step_ns"] / kernel["before_step_ns"] == pytest.approx(2.0)


def decode_with(path: Path, *, prefill: bool, is_named: bool) -> str:
    """Eager decode steps, after a long prefill or without one; steps are named by annotations or not."""
    program = Program()
    names = {"prefill": "prefill", "decode": "decode_step"} if is_named else {}

    def step(kind: str, layers: int, kernel_us: float) -> None:
        program.silence(5.0)
        with program.annotation(names[kind]) if is_named else nullcontext():
            decode_step(program, layers=layers, kernel_us=kernel_us)

    if prefill:
        step("prefill", 24, 60.0)
    for _ in range(8):
        step("decode", 8, 3.0)
    return written(program, path)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_prefill_in_one_run_alone_changes_no_figure_of_a_step(
    is_named: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = (
        decode_with(tmp_path / "with.json", prefill=True, is_named=is_named),
        decode_with(tmp_path / "without.json", prefill=False, is_named=is_named),
    )
    assert main(["compare", *paths, "--format", "json"]) == 0
    document = json.loads(capfd.readouterr().out)
    [speed] = document["speeds"]
    assert speed["speedup"] == pytest.approx(1.0, abs=0.03)
    [step] = [figure for figure in document["figures"] if figure["name"] == "step_seconds"]
    assert step["before"] == speed["before_seconds"]
    assert document["kernels"] == []
    [left] = document["left_out"]
    assert (left["side"], left["kind"], left["count"]) == ("before", "prefill" if is_named else "unusual", 1)
    assert main(["compare", *paths]) == 0
    page = capfd.readouterr().out
    assert f"Left out: 1 {left['kind']} step (" in page
    assert "of BEFORE" in page
    assert not any(line.startswith("step ") for line in page.splitlines())


def test_kernels_are_not_compared_where_one_run_hides_them_in_graphs() -> None:
    trace = shared_trace("h200/launch-sick.sqlite.gz"), shared_trace("h200/launch-fixed.sqlite.gz")
    sides = [_side(str(path)) for path in trace]
    comparison = compare(*sides)
    assert comparison.kernels == ()
    assert comparison.hidden_in == ("after",)
    page = " ".join(comparison_page(comparison, Presentation(120)).split())
    assert "Kernels are not compared, so that other work in the two would not be noticed: AFTER hides them" in page
    assert page.startswith("A decode step took 34.5 ms and now takes 2.83 ms: 12x faster as recorded, less without the")
    assert comparison.unlike == ()


SPELLED_TWICE = {
    "void at::native::elementwise_kernel<(int)128, (int)-4, (bool)1, at::native::<unnamed>::Op>(int)": (
        "void at::native::elementwise_kernel<128, -4, true, at::native::(anonymous namespace)::Op>(int)"
    ),
    "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<at::native::Copy"
    "(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 1)]>"
    "(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)": (
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::Copy"
        "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&,"
        " at::native::Copy(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1} const&)"
        "::{lambda(int)#1}>(int, at::native::Copy(at::TensorIteratorBase&)::{lambda(int)#1})"
    ),
    "void f<array<char *, (unsigned long)2>>(int, T2)": "void f<array<char*, 2ul> >(int, array<char*, 2ul>)",
}


@pytest.mark.parametrize("native", SPELLED_TWICE)
def test_two_recorders_spell_one_kernel_alike(native: str) -> None:
    assert spelled_alike(native) == spelled_alike(SPELLED_TWICE[native])


def test_kernels_that_differ_in_a_type_or_a_lambda_stay_two() -> None:
    name = "void fill<(int)4, at::Fill<float>::[lambda(int) (instance 1)]>(int, T2)"
    others = name.replace("float", "long"), name.replace("instance 1", "instance 2"), name.replace("(int)4", "(int)8")
    assert len({spelled_alike(one) for one in (name, *others)}) == 4


def test_a_run_recorded_by_two_tools_has_no_kernel_gone_or_new() -> None:
    trace = shared_trace("h200/launch-sick.sqlite.gz"), shared_trace("h200/launch-sick.pt.trace.json.gz")
    comparison = compare(*(_side(str(path)) for path in trace))
    assert not [one.name for one in comparison.kernels if not one.before_count or not one.after_count]


def test_benchmarks_regress_by_their_repeats(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fast, slow = bench(tmp_path / "a.json", 100.0), bench(tmp_path / "b.json", 80.0)
    assert main(["compare", fast, slow, "--fail-on-regression", "0.1"]) == 1
    assert "benchmark: 25.0% slower" in capfd.readouterr().err
    assert main(["compare", slow, fast, "--fail-on-regression", "0.1"]) == 0
    assert main(["compare", fast, slow, "--fail-on-regression", "much"]) == 2


def test_runs_without_a_common_kind_of_step_have_no_speed_to_fail_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        path.write_text(json.dumps({"schema": "engine.bench/1", "output_tokens": 3}))
    assert main(["compare", *map(str, paths), "--fail-on-regression", "5%"]) == 2
    assert "cannot be compared" in capfd.readouterr().err


def test_two_benchmarks_of_the_engine_are_compared_by_their_figures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", bench(tmp_path / "a.json", 100.0), bench(tmp_path / "b.json", 250.0)]) == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["output", "tokens", "per", "s", "100", "250", "2.50"] in lines
    assert ["ttft", "p50", "500", "ms", "500", "ms", "1.00"] in lines


def test_a_benchmark_and_a_recording_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", bench(tmp_path / "a.json", 100.0), eager(tmp_path / "b.json")]) == 2
    assert "cannot be compared" in capfd.readouterr().err


def test_a_benchmark_of_another_version_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", bench(tmp_path / "a.json", 1.0, "engine.bench/9"), bench(tmp_path / "b.json", 1.0)]) == 2
    assert "engine.bench/9" in capfd.readouterr().err
