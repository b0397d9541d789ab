from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")
if TYPE_CHECKING:
    import openai
else:
    openai = pytest.importorskip("openai", reason="needs the extra 'test'")

import httpx

from tests.support.engine_server import RunningServer, start_server

MODEL = "tiny-llama"
STREAMS = 200
PATIENCE_S = 60.0


async def _collect(client: openai.AsyncOpenAI, index: int) -> tuple[str, int]:
    stream = await client.completions.create(
        model=MODEL,
        prompt=[3 + index % 200, 7, 11],
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    text, tokens = "", 0
    async for piece in stream:
        text += piece.choices[0].text if piece.choices else ""
        tokens = piece.usage.completion_tokens if piece.usage else tokens
    return text, tokens


async def _all(server: RunningServer, count: int) -> list[tuple[str, int]]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S
    ) as client:
        return await asyncio.gather(*(_collect(client, index) for index in range(count)))


def _until(condition: object, server: RunningServer) -> None:
    assert callable(condition)
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, server.log.read_text(errors="replace")[-800:]
        time.sleep(0.02)


def test_two_hundred_streams_lose_nothing_and_leak_nothing(server: RunningServer) -> None:
    answers = asyncio.run(_all(server, STREAMS))
    assert [tokens for _, tokens in answers] == [12] * STREAMS
    alone = asyncio.run(_all(server, 1))
    assert answers[0] == alone[0]
    assert server.metric("engine_requests_running") == 0
    assert server.metric("engine_requests_waiting") == 0


def test_a_client_that_leaves_ends_its_request(server: RunningServer) -> None:
    aborted = _finished(server, "abort")
    body = {"model": MODEL, "prompt": [3, 5], "max_tokens": 400, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=PATIENCE_S) as stream:
        next(stream.iter_lines())
    _until(lambda: server.metric("engine_requests_running") == 0, server)
    assert server.metric("engine_kv_usage_ratio") < 0.5
    assert _finished(server, "abort") == aborted  # nobody is left who could be told


def _finished(server: RunningServer, reason: str) -> float:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    values = [
        line.split()[-1] for line in lines if line.startswith(f'engine_requests_finished_total{{reason="{reason}"')
    ]
    return sum(float(value) for value in values)


def test_more_than_it_can_hold_gets_429(checkpoint: Path, tmp_path: Path) -> None:
    with start_server(checkpoint, tmp_path, "--max-open-requests", "128") as small:
        body = {"model": MODEL, "prompt": [3, 5], "n": 128, "max_tokens": 400, "stream": True, "ignore_eos": True}
        with httpx.stream("POST", f"{small.url}/v1/completions", json=body, timeout=PATIENCE_S) as stream:
            lines = stream.iter_lines()
            next(lines)
            refused = httpx.post(f"{small.url}/v1/completions", json=body | {"n": 1})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        _until(lambda: small.metric("engine_requests_running") == 0, small)
        assert httpx.post(f"{small.url}/v1/completions", json=body | {"n": 1, "max_tokens": 2}).status_code == 200


def test_an_open_answer_is_finished_after_sigterm(checkpoint: Path, tmp_path: Path) -> None:
    with start_server(checkpoint, tmp_path) as server:
        body = {"model": MODEL, "prompt": [3, 5], "max_tokens": 200, "stream": True, "ignore_eos": True}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=PATIENCE_S) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert '"finish_reason": "length"' in rest[-2]
        assert server.process.wait(PATIENCE_S) == 0
