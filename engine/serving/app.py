"""The HTTP application: OpenAI's completions and chat completions over one engine.

Back pressure: beyond `max_open_requests` requests (each choice of `n` counts) a client gets 429 and should come back
later; a queue without end serves nobody. A client that leaves ends its requests. On SIGTERM the server takes no new
connection and lets open answers finish.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.core import EngineCore, Update
from engine.errors import ConfigError, EngineError, RequestRejectedError
from engine.llm import draws
from engine.sampling_params import SamplingParams
from engine.serving.answers import ChatShape, CompletionShape, Envelope, Shape, Usage, Whole
from engine.serving.metrics import ServingMetrics
from engine.serving.protocol import ChatRequest, CompletionRequest, StreamOptions
from engine.serving.worker import EngineWorker, Job, WorkerStoppedError

_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """How much one server takes in.

    Attributes:
        max_open_requests: requests running or waiting; more get 429.
        max_body_bytes: of one request's body; more gets 413.
    """

    max_open_requests: int = 1024
    max_body_bytes: int = 16 * 2**20


class _RefusedError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.response = JSONResponse(
            {"error": {"message": message, "type": code, "param": None, "code": code}},
            status_code=status,
            headers={"Retry-After": "1"} if status in {429, 503} else None,
        )


def create_app(core: EngineCore, model_name: str, limits: ServerLimits) -> Starlette:
    """The ASGI application of one engine.

    Args:
        core: the engine, not used by anybody else from now on.
        model_name: what clients call the model.
        limits: how much is taken in.
    """
    server = _Server(core, model_name, limits)
    routes = [
        Route("/v1/completions", server.completions, methods=["POST"]),
        Route("/v1/chat/completions", server.chat_completions, methods=["POST"]),
        Route("/v1/models", server.models),
        Route("/metrics", server.metrics_page),
        Route("/health", server.health),
    ]
    return Starlette(routes=routes, lifespan=server.lifespan)


class _Server:
    def __init__(self, core: EngineCore, model_name: str, limits: ServerLimits) -> None:
        self._worker = EngineWorker(core)
        self._core = core
        self._model_name = model_name
        self._limits = limits
        self._metrics = ServingMetrics(self._worker)
        self._tokenizing = threading.Lock()  # a fast tokenizer must not be used by two threads at once
        self._created = int(time.time())

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """The engine runs as long as the application does."""
        self._worker.start()
        yield
        await self._worker.stop()

    async def health(self, request: Request) -> Response:
        """200 while the engine works."""
        if self._worker.failure is None:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": self._worker.failure}, status_code=503)

    async def models(self, request: Request) -> Response:
        """The one model."""
        model = {"id": self._model_name, "object": "model", "created": self._created, "owned_by": "engine"}
        return JSONResponse({"object": "list", "data": [model]})

    async def metrics_page(self, request: Request) -> Response:
        """Prometheus text."""
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def completions(self, request: Request) -> Response:
        """`POST /v1/completions`."""

        async def answer() -> Response:
            body = await self._read(request, CompletionRequest)
            params = body.sampling(body.max_tokens, body.logprobs)
            prompts = [await self._encode(prompt) for prompt in body.prompts()]
            return await self._answer(request, _Asked(body, prompts, params, CompletionShape(self._token_text)))

        return await _refusing(answer)

    async def chat_completions(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""

        async def answer() -> Response:
            body = await self._read(request, ChatRequest)
            prompt = await asyncio.to_thread(self._chat_tokens, body)
            wanted = body.max_completion_tokens or body.max_tokens
            room = self._core.loop.scheduler.config.max_len - len(prompt)
            logprobs = (body.top_logprobs or 0) if body.logprobs else None
            params = body.sampling(wanted or max(room, 1), logprobs)
            return await self._answer(request, _Asked(body, [prompt], params, ChatShape(self._token_text)))

        return await _refusing(answer)

    async def _read(self, request: Request, kind: type[_Body]) -> _Body:
        received = bytearray()
        async for piece in request.stream():
            received += piece
            if len(received) > self._limits.max_body_bytes:
                raise _RefusedError(413, f"the body is over {self._limits.max_body_bytes} bytes", "request_too_large")
        try:
            body = kind.model_validate_json(bytes(received))
        except ValidationError as error:
            raise _RefusedError(400, _first_complaint(error), "invalid_request_error") from error
        if body.model != self._model_name:  # type: ignore[attr-defined]  # both kinds have it
            raise _RefusedError(404, f"no model is called {body.model!r} here", "model_not_found")  # type: ignore[attr-defined]
        return body

    async def _encode(self, prompt: str | list[int]) -> list[int]:
        return prompt if isinstance(prompt, list) else await asyncio.to_thread(self._text_tokens, prompt)

    def _text_tokens(self, prompt: str) -> list[int]:
        with self._tokenizing:
            return self._core.encode(prompt)

    def _chat_tokens(self, body: ChatRequest) -> list[int]:
        tokenizer = self._core.vocabulary.tokenizer
        if tokenizer is None or not tokenizer.chat_template:
            raise ConfigError("the checkpoint has no chat template: use /v1/completions")
        try:
            messages = [{"role": message.role, "content": message.text()} for message in body.messages]
        except ValueError as error:
            raise ConfigError(str(error)) from error
        with self._tokenizing:
            text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    def _token_text(self, token_id: int) -> str:
        tokenizer = self._core.vocabulary.tokenizer
        return f"token_id:{token_id}" if tokenizer is None else str(tokenizer.decode([token_id]))

    async def _answer(self, request: Request, asked: _Asked) -> Response:
        jobs = asked.jobs()
        if self._worker.num_open + len(jobs) > self._limits.max_open_requests:
            self._metrics.refused.inc()
            raise _RefusedError(429, "too many open requests: come back in a second", "rate_limit_exceeded")
        envelope = Envelope(asked.shape, self._model_name)
        usage = Usage(prompt_tokens=sum(len(prompt) for prompt in asked.prompts))
        updates = _merged([self._watched(job) for job in jobs])
        if asked.body.stream:
            first = await anext(updates)  # a refusal comes as a status, not inside the stream
            events = self._events(_chained(first, updates), envelope, usage, asked.body.stream_options)
            return StreamingResponse(events, media_type="text/event-stream")
        return await _unless_gone(request, self._whole(updates, len(jobs), envelope, usage))

    async def _whole(
        self, updates: AsyncIterator[tuple[int, Update]], count: int, envelope: Envelope, usage: Usage
    ) -> Response:
        choices = [Whole() for _ in range(count)]
        async for index, update in updates:
            choices[index].add(update)
            usage.completion_tokens += len(update.token_ids)
            if update.error is not None:
                raise _RefusedError(500, f"the engine gave up on this request: {update.error}", "engine_error")
        listed = [envelope.shape.whole(index, choice) for index, choice in enumerate(choices)]
        return JSONResponse(envelope.whole(listed, usage))

    async def _events(
        self,
        updates: AsyncIterator[tuple[int, Update]],
        envelope: Envelope,
        usage: Usage,
        options: StreamOptions | None,
    ) -> AsyncIterator[str]:
        begun: set[int] = set()
        try:
            async for index, update in updates:
                usage.completion_tokens += len(update.token_ids)
                is_news = update.text or update.logprobs or update.finish_reason is not None or index not in begun
                if is_news:
                    piece = envelope.shape.piece(index, update, index not in begun)
                    begun.add(index)
                    yield _event(envelope.piece([piece]))
            if options is not None and options.include_usage:
                yield _event(envelope.piece([]) | {"usage": usage.as_json()})
        except WorkerStoppedError as error:
            yield _event({"error": {"message": str(error), "type": "engine_error", "code": "engine_error"}})
        yield "data: [DONE]\n\n"

    async def _watched(self, job: Job) -> AsyncIterator[Update]:
        """The updates of one request, its latencies observed."""
        last_s = time.monotonic()
        is_first = True
        async with aclosing(self._worker.stream(job)) as updates:  # type: ignore[type-var]
            async for update in updates:
                if update.token_ids:
                    (self._metrics.ttft_s if is_first else self._metrics.itl_s).observe(max(update.at_s - last_s, 0.0))
                    is_first, last_s = False, update.at_s
                if update.finish_reason is not None:
                    self._metrics.finished.labels(update.finish_reason.value).inc()
                yield update


@dataclass(frozen=True, slots=True)
class _Asked:
    """One HTTP request, understood."""

    body: CompletionRequest | ChatRequest
    prompts: list[list[int]]
    params: SamplingParams
    shape: Shape

    def jobs(self) -> list[Job]:
        """One for each prompt and each of its `n` choices."""
        deadline_s = None if self.body.deadline_s is None else time.monotonic() + self.body.deadline_s
        singles = draws(self.params)
        return [Job(prompt, single, deadline_s) for prompt in self.prompts for single in singles]


async def _refusing(answer: Callable[[], Coroutine[Any, Any, Response]]) -> Response:
    """Turn what a client did wrong into its status."""
    try:
        return await answer()
    except _RefusedError as refusal:
        return refusal.response
    except RequestRejectedError as error:
        return _RefusedError(400, str(error), "context_length_exceeded").response
    except WorkerStoppedError as error:
        return _RefusedError(503, str(error), "engine_error").response
    except EngineError as error:
        return _RefusedError(400, str(error), "invalid_request_error").response
    except ClientDisconnect:
        return Response(status_code=499)


async def _merged(streams: list[AsyncIterator[Update]]) -> AsyncIterator[tuple[int, Update]]:
    """Updates of several requests in the order in which they come; closing it closes them all."""
    arrived: asyncio.Queue[tuple[int, Update | BaseException | None]] = asyncio.Queue()

    async def forward(index: int, stream: AsyncIterator[Update]) -> None:
        try:
            async with aclosing(stream) as updates:  # type: ignore[type-var]
                async for update in updates:
                    arrived.put_nowait((index, update))
            arrived.put_nowait((index, None))
        except Exception as error:  # noqa: BLE001  handed on to the reader
            arrived.put_nowait((index, error))

    tasks = [asyncio.create_task(forward(index, stream)) for index, stream in enumerate(streams)]
    try:
        open_count = len(tasks)
        while open_count:
            index, update = await arrived.get()
            if isinstance(update, BaseException):
                raise update
            if update is None:
                open_count -= 1
            else:
                yield index, update
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _chained(
    first: tuple[int, Update], rest: AsyncIterator[tuple[int, Update]]
) -> AsyncIterator[tuple[int, Update]]:
    async with aclosing(rest) as updates:  # type: ignore[type-var]
        yield first
        async for update in updates:
            yield update


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, Response]) -> Response:
    """The answer, given up as soon as the client has left."""
    working = asyncio.ensure_future(answer)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return await working
        return Response(status_code=499)
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(document: dict[str, Any]) -> str:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n"


def _first_complaint(error: ValidationError) -> str:
    one = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in one["loc"])
    return f"{where}: {one['msg']}" if where else str(one["msg"])
