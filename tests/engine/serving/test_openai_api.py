from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")
if TYPE_CHECKING:
    import openai
    from openai.types import CompletionChoice
else:
    openai = pytest.importorskip("openai", reason="needs the extra 'test'")

import httpx

from tests.support.engine_server import RunningServer

MODEL = "tiny-llama"


@pytest.fixture
def client(server: RunningServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_lists_its_model_and_is_healthy(server: RunningServer, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_stream_says_what_a_whole_answer_says(client: openai.OpenAI) -> None:
    whole = client.completions.create(model=MODEL, prompt="hello", max_tokens=24, temperature=0)
    pieces = list(
        client.completions.create(
            model=MODEL,
            prompt="hello",
            max_tokens=24,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == whole.choices[0].text
    assert whole.usage is not None
    assert pieces[-1].usage == whole.usage
    assert whole.usage.completion_tokens <= 24
    assert whole.choices[0].finish_reason in {"length", "stop"}


def test_answers_every_prompt_and_every_choice(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["one", "two"], n=2, max_tokens=4, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    again = client.completions.create(model=MODEL, prompt=["one", "two"], n=2, max_tokens=4, seed=7)
    assert [choice.text for choice in answer.choices] == [choice.text for choice in again.choices]


def test_takes_token_ids_and_gives_logprobs(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=[5, 9, 31], max_tokens=3, temperature=0, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert all(value <= 0 for value in logprobs.token_logprobs)
    # tokens that are part of a letter share a text, and with it a key
    assert all(1 <= len(top) <= 2 for top in logprobs.top_logprobs or [])


def test_ends_at_a_stop_text_and_cuts_it_off(client: openai.OpenAI) -> None:
    def answer(stop: str | None) -> CompletionChoice:
        return client.completions.create(
            model=MODEL, prompt="hello", max_tokens=40, temperature=0, stop=stop, extra_body={"ignore_eos": True}
        ).choices[0]

    text = answer(None).text
    stop = text[5:7]
    cut = answer(stop)
    assert cut.finish_reason == "stop"
    assert cut.text == text[: text.index(stop)]


def test_a_chat_needs_a_template(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="chat template"):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": MODEL}, 400, "prompt"),
        ({"model": "other", "prompt": "x"}, 404, "other"),
        ({"model": MODEL, "prompt": "x", "temperature": -1}, 400, "temperature"),
        ({"model": MODEL, "prompt": "x", "best_of": 3}, 400, "best_of"),
        ({"model": MODEL, "prompt": "x", "no_such_option": 1}, 400, "no_such_option"),
        ({"model": MODEL, "prompt": [999_999]}, 400, "vocabulary"),
        ({"model": MODEL, "prompt": "x" * 5000, "max_tokens": 4}, 400, "5000"),
    ],
)
def test_refuses_in_one_sentence_what_it_cannot_do(
    server: RunningServer, body: dict[str, object], status: int, words: str
) -> None:
    answer = httpx.post(f"{server.url}/v1/completions", json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


def test_refuses_what_is_no_json(server: RunningServer) -> None:
    answer = httpx.post(f"{server.url}/v1/completions", content=b"{{{")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_request_error"
