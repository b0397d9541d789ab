from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

import engine  # noqa: E402
from engine import LLM, SamplingParams  # noqa: E402
from engine.errors import CheckpointError, ConfigError, RequestRejectedError  # noqa: E402
from engine.scheduling.request import FinishReason  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402
from tests.support.tiny_tokenizer import save_tokenizer  # noqa: E402

PROMPT = [5, 6, 7, 8, 9]


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model("llama", vocab_size=300)


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tokenizer(save_model(model, tmp_path_factory.mktemp("llama")))


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(str(folder), device="cpu", dtype="float32", max_model_len=128)


def test_the_public_names_are_one_sorted_list() -> None:
    assert list(engine.__all__) == ["LLM", "EngineConfig", "SamplingParams"]
    assert all(hasattr(engine, name) for name in engine.__all__)


def test_logprobs_equal_those_of_transformers(llm: LLM, model: Any) -> None:
    [answer] = llm.generate([PROMPT], SamplingParams(temperature=0, max_new_tokens=4, logprobs=3, ignore_eos=True))
    ids = torch.tensor([[*PROMPT, *answer.token_ids]])
    with torch.inference_mode():
        expected = model(ids).logits[0, len(PROMPT) - 1 : -1].log_softmax(-1)
    assert len(answer.logprobs) == 4
    for row, entry in zip(expected, answer.logprobs, strict=True):
        assert entry.logprob == pytest.approx(float(row[entry.token_id]), abs=1e-4)
        assert [token for token, _ in entry.top] == row.topk(3).indices.tolist()
        assert [value for _, value in entry.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)


def test_requests_get_as_many_logprobs_as_they_asked_for(llm: LLM) -> None:
    params = [SamplingParams(max_new_tokens=2, logprobs=count, seed=1) for count in (None, 0, 5)]
    answers = llm.generate([PROMPT] * 3, params)
    assert [[len(entry.top) for entry in answer.logprobs] for answer in answers] == [[], [0, 0], [5, 5]]


def test_a_stop_token_ends_a_request_and_is_part_of_the_answer(llm: LLM) -> None:
    [free] = llm.generate([PROMPT], SamplingParams(temperature=0, max_new_tokens=8, ignore_eos=True))
    stop = free.token_ids[3]
    params = SamplingParams(temperature=0, max_new_tokens=8, ignore_eos=True, stop_token_ids=(stop,))
    [answer] = llm.generate([PROMPT], params)
    assert answer.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert answer.finish_reason is FinishReason.STOP


def test_the_end_of_sequence_ends_a_request_unless_it_is_ignored(folder: Path, llm: LLM) -> None:
    [free] = llm.generate([PROMPT], SamplingParams(temperature=0, max_new_tokens=6, ignore_eos=True))
    assert free.finish_reason is FinishReason.LENGTH
    llm.core.vocabulary = type(llm.core.vocabulary)(300, (free.token_ids[2],), llm.core.vocabulary.tokenizer)
    [ended] = llm.generate([PROMPT], SamplingParams(temperature=0, max_new_tokens=6))
    assert ended.token_ids == free.token_ids[:3]


def test_a_stop_string_ends_a_request_and_cuts_the_text(folder: Path) -> None:
    llm = LLM(str(folder), device="cpu", dtype="float32", max_model_len=128)
    params = SamplingParams(temperature=0, max_new_tokens=12, ignore_eos=True)
    [free] = llm.generate(["hello"], params)
    stop = free.text[5:8]
    assert len(stop) == 3
    params = SamplingParams(temperature=0, max_new_tokens=12, ignore_eos=True, stop=(stop,))
    [answer] = llm.generate(["hello"], params)
    assert answer.text == free.text[: free.text.index(stop)]
    assert answer.finish_reason is FinishReason.STOP
    assert llm.core.is_idle


def test_text_in_gives_the_same_as_its_tokens(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_new_tokens=5, ignore_eos=True)
    [by_text] = llm.generate(["some text"], params)
    [by_ids] = llm.generate([llm.core.encode("some text")], params)
    assert by_text == by_ids or by_text.token_ids == by_ids.token_ids


def test_n_draws_several_answers_with_seeds_of_their_own(llm: LLM) -> None:
    answers = llm.generate([PROMPT, PROMPT], SamplingParams(max_new_tokens=6, n=3, seed=5))
    assert len(answers) == 6
    first = [answer.token_ids for answer in answers[:3]]
    assert len(set(first)) == 3
    assert [answer.token_ids for answer in answers[3:]] == first
    [alone] = llm.generate([PROMPT], SamplingParams(max_new_tokens=6, seed=6))
    assert alone.token_ids == first[1]


def test_times_are_given_for_every_token(llm: LLM) -> None:
    [answer] = llm.generate([PROMPT], SamplingParams(temperature=0, max_new_tokens=5, ignore_eos=True))
    assert answer.ttft_s is not None
    assert answer.ttft_s > 0
    assert len(answer.itl_s) == 4
    assert all(gap >= 0 for gap in answer.itl_s)


def test_an_aborted_request_ends_at_once_and_leaves_no_block(llm: LLM) -> None:
    core = llm.core
    kept = core.submit(PROMPT, SamplingParams(temperature=0, max_new_tokens=5, ignore_eos=True))
    gone = core.submit([9, 9, 9], SamplingParams(temperature=0, max_new_tokens=50, ignore_eos=True))
    core.step()
    update = core.abort(gone)
    assert update is not None
    assert update.finish_reason is FinishReason.ABORT
    assert core.abort(gone) is None
    seen = set()
    while not core.is_idle:
        seen |= {update.request_id for update in core.step()}
    assert seen == {kept}
    core.forget_prefixes()
    assert core.loop.scheduler.tables.device.num_used == 0


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([], "empty"), ([300], "outside the vocabulary"), ([-1], "outside the vocabulary"), ([5] * 128, "no room")],
)
def test_a_request_that_can_never_run_is_refused_and_takes_the_others_along(
    llm: LLM, prompt: list[int], message: str
) -> None:
    with pytest.raises(RequestRejectedError, match=message):
        llm.generate([PROMPT, prompt], SamplingParams(max_new_tokens=4))
    assert llm.core.is_idle


def test_prompts_and_params_must_be_as_many(llm: LLM) -> None:
    with pytest.raises(ConfigError, match="2 prompts, but sampling options for 1"):
        llm.generate([PROMPT, PROMPT], [SamplingParams()])


def test_a_missing_checkpoint_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        LLM(str(tmp_path / "nothing"))


def test_a_length_beyond_the_model_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="beyond the 256 positions"):
        LLM(str(folder), device="cpu", max_model_len=257)


def test_a_draft_with_another_vocabulary_is_refused(folder: Path, tmp_path: Path) -> None:
    draft = save_model(make_model("llama", vocab_size=200), tmp_path)
    with pytest.raises(ConfigError, match="same vocabulary; they have 200 and 300"):
        LLM(str(folder), device="cpu", speculate=f"draft:{draft}")


@pytest.mark.parametrize("options", [{}, {"weight_offload": 0.5}, {"speculate": "ngram"}, {"kv": "concat"}])
def test_a_dropped_engine_is_gone_before_the_next_one_is_built(folder: Path, options: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"device": "cpu", "dtype": "float32", "max_model_len": 128}
    first = LLM(str(folder), **settings, **options)
    first.generate([PROMPT], SamplingParams(max_new_tokens=3))
    remembered = weakref.ref(first.core.loop)
    del first
    LLM(str(folder), **settings)
    assert remembered() is None
