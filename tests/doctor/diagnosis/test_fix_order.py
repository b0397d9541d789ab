"""Settings stand in the order of what the evidence was made by."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.case.framework_queries import OWN_RANGES, frameworks
from doctor.cli.main import main
from doctor.diagnosis.catalogue import load_catalogue
from doctor.diagnosis.fix_order import FRAMEWORKS, SYSTEM, ordered
from doctor.rule import Fix
from tests.support import engine_texts
from tests.support.case_rows import Rows
from tests.support.trace_builder import Program, decode_step
from tests.support.verdicts import verdicts_on_all

FIXES = (Fix("system", "a", ""), Fix("pytorch", "b", ""), Fix("vllm", "c", ""), Fix("system", "d", ""))


@pytest.fixture
def eager_trace(tmp_path: Path) -> Path:
    program = Program()
    for _ in range(6):
        decode_step(program)
    program.write(tmp_path / "trace.json")
    return tmp_path / "trace.json"


def targets(trace: Path, text: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    log = trace.with_name("engine.log")
    log.write_text(text, encoding="utf-8")
    document = verdicts_on_all([trace, log], capfd).document
    return list(dict.fromkeys(fix["target"] for fix in document["findings"][0]["fixes"]))


def test_a_framework_goes_first_and_the_machine_keeps_its_place() -> None:
    assert [fix.setting for fix in ordered(FIXES, ("vllm",))] == ["a", "c", "b", "d"]
    assert ordered(FIXES, ()) == FIXES
    assert ordered(FIXES, ("sglang",)) == FIXES


def test_kin_stand_before_strangers() -> None:
    fixes = (Fix("vllm", "a", ""), Fix("sglang", "b", ""), Fix("transformers", "c", ""))
    assert [fix.setting for fix in ordered(fixes, ("pytorch",))] == ["c", "a", "b"]


def test_a_log_beside_a_trace_says_whose_setting_comes_first(
    eager_trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    vllm = "\n".join(engine_texts.vllm_status(second, 4) for second in range(0, 60, 10))
    sglang = "\n".join(engine_texts.sglang_decode(second, 4) for second in range(0, 60, 10))
    assert targets(eager_trace, vllm, capfd)[:2] == ["vllm", "pytorch"]
    assert targets(eager_trace, sglang, capfd)[:2] == ["sglang", "pytorch"]


@pytest.mark.parametrize("output", ["terminal", "markdown", "sarif", "junit", "github", "html"])
def test_the_framework_asked_for_comes_first_in_every_output(
    output: str, eager_trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(eager_trace), "--format", output, "--framework", "sglang"]) == 0
    printed = capfd.readouterr().out
    places = [printed.index(words) for words in ("--disable-cuda-graph", "torch.cuda.CUDAGraph", "--enforce-eager")]
    assert places == sorted(places)


def test_a_check_shows_the_framework_asked_for_first_and_one_setting_of_the_own_engine(
    eager_trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(eager_trace), "--framework", "vllm"]) == 1
    printed = capfd.readouterr().out
    assert printed.index("  vLLM: ") < printed.index("  PyTorch: ")
    [breach, *_] = printed.split("more: doctor explain")
    assert breach.count("  Engine: ") == 1


def test_an_unknown_framework_is_refused_with_the_known_ones(
    eager_trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(eager_trace), "--framework", "vlm"]) == 2
    assert "'pytorch', 'vllm', 'sglang'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("vllm/v1/worker/gpu_model_runner.py(3380): execute_model", "transformers/models/qwen2/q.py(5): f"), "vllm"),
        (("void vllm::reshape_and_cache_kernel<float>", "sgl_hip::activation::act_and_mul_kernel"), "sglang"),
        (("transformers/models/qwen2/modeling_qwen2.py(503): forward",), "transformers"),
        (("void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel",), "tensorrt-llm"),
        (OWN_RANGES[:4], "engine"),
    ],
)
def test_names_in_a_recording_tell_the_framework(names: tuple[str, ...], expected: str) -> None:
    rows = Rows()
    for place, name in enumerate(names):
        rows.operator(name, place, place + 1)
        rows.annotation(name, place, place + 1)
    with rows.case() as case:
        assert frameworks(case)[0] == expected


def test_a_recording_that_names_nothing_leaves_the_order_of_the_rule() -> None:
    rows = Rows()
    rows.kernel("some_gemm_kernel", 0, 1)
    rows.annotation("step", 0, 1)
    rows.annotation("layer", 0, 1)
    with rows.case() as case:
        assert frameworks(case) == ()


def test_ranges_are_those_that_the_engine_writes() -> None:
    ranges = pytest.importorskip("engine.tracing.ranges", reason="needs the extra 'engine'", exc_type=ImportError)
    assert set(OWN_RANGES) <= {each.value for each in ranges.Range}


def test_every_target_of_a_rule_can_be_asked_for() -> None:
    targets = {fix.target for rule in load_catalogue(None) for fix in rule.fixes}
    assert targets == {*FRAMEWORKS, SYSTEM}
