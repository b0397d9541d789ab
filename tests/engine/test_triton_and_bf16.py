"""The backend of the GPU in Triton's interpreter, and bf16, where equal tokens cannot be asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine import LLM, SamplingParams  # noqa: E402
from tests.support.engine_requests import MixedRequests, mixed_requests, run  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

TOP = 5


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MixedRequests]:
    model = make_model("llama")
    folder = save_model(model, tmp_path_factory.mktemp("llama"))
    return folder, mixed_requests(model, 4, longest_prompt=14, longest_answer=5, num_shared=6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the kernels are compiled: see test_gpu.py")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_num_batched_tokens": 7},
        {"speculate": "ngram", "ngram_min": 1},
        {"kv": "contiguous"},
        {"batching": "single"},
        {"num_blocks": 9, "admission": "free-blocks"},
    ],
    ids=["continuous", "chunks", "n-gram", "contiguous", "single", "preempted"],
)
def test_triton_paged_gives_the_tokens_of_transformers(
    llama: tuple[Path, MixedRequests], options: dict[str, Any]
) -> None:
    pytest.importorskip("triton", reason="needs the package triton")
    settings = {"attention": "triton_paged", "block_size": 4, "max_model_len": 32, **options}
    answers, _ = run(llama[0], llama[1], **settings)
    assert answers == llama[1].answers


def test_bf16_takes_tokens_that_transformers_nearly_takes(tmp_path: Path) -> None:
    """At the first token that differs, each side's choice is among the best of the other."""
    model = make_model("qwen3").to(torch.bfloat16)
    folder = save_model(model, tmp_path)
    requests = mixed_requests(model, 12, longest_answer=20)
    llm = LLM(str(folder), device="cpu", dtype="bfloat16", max_model_len=128)
    params = [
        SamplingParams(temperature=0, max_new_tokens=length, ignore_eos=True, logprobs=TOP)
        for length in requests.lengths
    ]
    num_equal = 0
    for prompt, ours, theirs in zip(
        requests.prompts, llm.generate(requests.prompts, params), requests.answers, strict=True
    ):
        pairs = list(zip(ours.token_ids, theirs, strict=True))
        differing = [place for place, (a, b) in enumerate(pairs) if a != b]
        if not differing:
            num_equal += 1
            continue
        place = differing[0]
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *theirs[:place]]])).logits[0, -1].float()
        assert ours.token_ids[place] in logits.topk(TOP).indices.tolist()
        assert theirs[place] in [token for token, _ in ours.logprobs[place].top]
    assert num_equal > 0
