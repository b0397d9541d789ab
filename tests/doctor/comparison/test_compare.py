from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.cli.main import main
from tests.support.trace_builder import GEMM, HEAD_GEMM, Program, decode_step


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
