"""The thread that owns the engine; everybody else talks to it through a queue.

The engine is not made for several threads, and a step must not wait for a slow client. Requests and aborts go into a
queue that the thread empties between steps; updates go back to the event loop in one call a step, whatever the number
of streams.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.core import EngineCore, Update
    from engine.sampling_params import SamplingParams

_LOG = logging.getLogger("engine.serving")
_IDLE_S = 0.05
_NAP_S = 0.0005


class WorkerStoppedError(EngineError):
    """The engine has stopped or failed; the process should be replaced."""


@dataclass(slots=True)
class _Stream:
    """Where the updates of one request go; touched by the event loop only."""

    updates: asyncio.Queue[Update | Exception] = field(default_factory=asyncio.Queue)


@dataclass(frozen=True, slots=True)
class Job:
    """One request to the engine.

    Attributes:
        prompt_token_ids: the prompt.
        params: how it is answered; `n` is 1.
        deadline_s: moment at which the answer should be complete, on the clock of `time.monotonic`.
    """

    prompt_token_ids: Sequence[int]
    params: SamplingParams
    deadline_s: float | None = None


class EngineWorker:
    """Runs an `EngineCore` on a thread of its own."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.num_open = 0
        self.failure: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams: dict[int, _Stream] = {}
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread; called on the event loop that the streams live on."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End what still runs and stop the thread."""
        self._is_stopping.set()
        await asyncio.to_thread(self._thread.join)

    async def stream(self, job: Job) -> AsyncIterator[Update]:
        """Run one request and yield its updates; closing the iterator aborts the request.

        Raises:
            RequestRejectedError: it can never run.
            WorkerStoppedError: the engine has stopped or failed.
        """
        stream = _Stream()
        self.num_open += 1
        request_id: int | None = None
        try:
            request_id = await self._submit(job, stream)
            while True:
                update = await stream.updates.get()
                if isinstance(update, Exception):
                    raise update
                yield update
                if update.finish_reason is not None:
                    request_id = None
                    return
        finally:
            self.num_open -= 1
            if request_id is not None:
                self._abort(request_id)

    async def _submit(self, job: Job, stream: _Stream) -> int:
        if self.failure is not None or self._is_stopping.is_set():
            raise WorkerStoppedError(self.failure or "the engine is shutting down")
        assert self._loop is not None, "the worker is used before it was started"
        taken: asyncio.Future[int] = self._loop.create_future()

        def submit() -> None:
            try:
                request_id = self.core.submit(job.prompt_token_ids, job.params, job.deadline_s)
            except EngineError as error:
                self._on_loop(_set_exception, taken, error)
            else:
                self._streams[request_id] = stream
                self._on_loop(self._give_id, taken, request_id)

        self._calls.put(submit)
        return await taken

    def _give_id(self, taken: asyncio.Future[int], request_id: int) -> None:
        if taken.cancelled():  # the client left before the engine took the request
            self._abort(request_id)
        else:
            taken.set_result(request_id)

    def _abort(self, request_id: int) -> None:
        def abort() -> None:
            self._streams.pop(request_id, None)
            self.core.abort(request_id)

        self._calls.put(abort)

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self._take_calls()
                self._turn()
        except Exception as error:  # noqa: BLE001  a thread that dies silently leaves every client hanging
            _LOG.exception("event=engine_failed")
            self.failure = f"the engine failed: {type(error).__name__}"
        finally:
            self._end_streams()

    def _take_calls(self) -> None:
        waits = self.core.is_idle
        while True:
            try:
                call = self._calls.get(timeout=_IDLE_S) if waits else self._calls.get_nowait()
            except queue.Empty:
                return
            call()
            waits = False

    def _turn(self) -> None:
        if self.core.is_idle:
            return
        num_steps = self.core.counters.steps
        updates = self.core.step()
        if updates:
            batch = [
                (self._streams[update.request_id], update) for update in updates if update.request_id in self._streams
            ]
            for update in updates:
                if update.finish_reason is not None:
                    self._streams.pop(update.request_id, None)
            self._on_loop(_deliver, batch)
        elif self.core.counters.steps == num_steps:
            self._is_stopping.wait(_NAP_S)  # a batch is still being formed

    def _end_streams(self) -> None:
        error = WorkerStoppedError(self.failure or "the engine is shutting down")
        for stream in self._streams.values():
            self._on_loop(stream.updates.put_nowait, error)
        self._streams.clear()

    def _on_loop(self, function: Callable[..., object], *arguments: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def _deliver(batch: list[tuple[_Stream, Update]]) -> None:
    for stream, update in batch:
        stream.updates.put_nowait(update)


def _set_exception(future: asyncio.Future[int], error: Exception) -> None:
    if not future.cancelled():
        future.set_exception(error)
