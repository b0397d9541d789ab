"""Ranges reach both tools, and cost next to nothing while neither listens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine import LLM, SamplingParams  # noqa: E402
from engine.tracing import DOMAIN, Range, is_listening, span  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(make_model("mixtral"), tmp_path_factory.mktemp("mixtral"))


def test_the_torch_profiler_sees_every_range_of_a_run(folder: Path) -> None:
    llm = LLM(str(folder), device="cpu", dtype="float32", speculate=f"draft:{folder}", max_model_len=64)
    params = SamplingParams(temperature=0, max_new_tokens=6, ignore_eos=True)
    with torch.profiler.profile() as profile:
        llm.generate([[5, 6, 7], [8, 9]], params)
        LLM(str(folder), device="cpu", dtype="float32", max_model_len=64).generate([[5, 6, 7]], params)
    seen = {event.key for event in profile.key_averages()}
    absent = {Range.COLLECTIVE, Range.REQUEST, Range.GRAPH_REPLAY}  # graphs are replayed on a GPU
    expected = {name.value for name in Range} - absent | {"request begin", "request end"}
    assert expected <= seen


def test_ranges_of_layers_lie_within_their_step(folder: Path) -> None:
    llm = LLM(str(folder), device="cpu", dtype="float32", max_model_len=64)
    params = SamplingParams(temperature=0, max_new_tokens=3, ignore_eos=True)
    with torch.profiler.profile() as profile:
        llm.generate([[5, 6, 7]], params)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["step"] == 3
    assert counts["prefill"] == 1
    assert counts["decode"] == 2
    assert counts["layer"] == counts["attention"] == counts["mlp"] == 3 * 2


def test_nobody_listens_without_a_profiler() -> None:
    assert not is_listening()
    assert span(Range.STEP) is span(Range.LAYER)


def test_nvtx_gets_ranges_in_the_domain_of_the_engine_when_a_tool_announces_itself() -> None:
    pytest.importorskip("nvtx", reason="needs the package nvtx")
    script = (
        "import nvtx, engine.tracing.nvtx as ours\n"
        "assert ours.is_listening()\n"
        f"assert ours._DOMAIN is nvtx.get_domain({DOMAIN!r})\n"
        "with ours.span(ours.Range.STEP, 3):\n"
        "    pass\n"
        "ranges = ours.OpenRanges()\n"
        "ranges.begin(ours.Range.REQUEST, 1)\n"
        "ranges.end(ours.Range.REQUEST, 1)\n"
        "ranges.end(ours.Range.REQUEST, 1)\n"
    )
    environment = {"NVTX_INJECTION64_PATH": "/nothing/there.so", "PYTHONPATH": "."}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
