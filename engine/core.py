"""The engine behind its two faces, `LLM` and the server: prompts in, updates out, one turn at a time."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.errors import ConfigError, RequestRejectedError
from engine.execution.detokenizer import Detokenizer, StopStrings
from engine.execution.token_choice import Submission
from engine.scheduling.request import FinishReason, Request

if TYPE_CHECKING:
    from engine.execution.counters import Counters
    from engine.execution.loop import EngineLoop, NewTokens
    from engine.execution.step_results import TokenLogprobs
    from engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the engine knows about tokens.

    Attributes:
        size: number of token ids the model has.
        eos_token_ids: tokens that end a text.
        tokenizer: of `transformers`; None where the checkpoint has none, and then there is no text either.
    """

    size: int
    eos_token_ids: tuple[int, ...]
    tokenizer: Any | None


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of an engine on its device.

    Attributes:
        weight_bytes: of the weights.
        draft_bytes: weights and KV of the draft model, if there is one.
        graph_bytes: by which recording the CUDA graphs has reduced the free memory of the device.
        kv_reserved_bytes: taken for KV when the engine is built; 0 where it grows with the requests.
        kv_bytes_per_token: of the KV of one token in all layers.
        kv_block_size: tokens in a block, or in the stretch that a request reserves.
    """

    weight_bytes: int
    draft_bytes: int
    graph_bytes: int
    kv_reserved_bytes: int
    kv_bytes_per_token: int
    kv_block_size: int

    def kv_peak_bytes(self, counters: Counters) -> int:
        """KV that requests held at most: their blocks, or their tokens where nothing is reserved."""
        blocks = counters.kv_blocks_peak * self.kv_block_size if self.kv_reserved_bytes else counters.kv_tokens_peak
        return blocks * self.kv_bytes_per_token


class Update(NamedTuple):
    """Progress of one request; a named tuple, since a step makes one for each request.

    Attributes:
        request_id: key.
        token_ids: new tokens.
        text: new text that is safe to show; tokens whose text may still change hold it back.
        logprobs: one entry a token where the request wants them.
        finish_reason: None while it goes on.
        at_s: moment at which the host had the tokens, on the clock of `time.monotonic`.
        error: what failed, with the reason `error`.
    """

    request_id: int
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: FinishReason | None
    at_s: float
    error: str | None = None


@dataclass(slots=True)
class _Text:
    detokenizer: Detokenizer
    stops: StopStrings


class EngineCore:
    """Takes requests, turns the loop, and turns tokens into text. Not safe to share between threads."""

    def __init__(self, loop: EngineLoop, vocabulary: Vocabulary, footprint: Footprint, seed: int) -> None:
        self.vocabulary = vocabulary
        self.footprint = footprint
        self._loop = loop
        self._ids = count()
        self._texts: dict[int, _Text] = {}
        # Not for secrets: seeds of requests that name none.
        self._seeds = random.Random(seed)  # noqa: S311

    @property
    def counters(self) -> Counters:
        """What has been counted since the last reset."""
        return self._loop.counters

    @property
    def loop(self) -> EngineLoop:
        """The loop, for those who want to look at the scheduler."""
        return self._loop

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing left to do."""
        return self._loop.is_idle

    def forget_prefixes(self) -> None:
        """Empty the prefix cache."""
        self._loop.scheduler.forget_prefixes()

    def encode(self, prompt: str) -> list[int]:
        """Tokens of a text.

        Raises:
            ConfigError: the checkpoint has no tokenizer.
        """
        if self.vocabulary.tokenizer is None:
            raise ConfigError("the checkpoint has no tokenizer: give the prompt as token ids")
        return list(self.vocabulary.tokenizer(prompt)["input_ids"])

    def submit(self, prompt_token_ids: Sequence[int], params: SamplingParams, deadline_s: float | None = None) -> int:
        """Take in one request (`params.n` is the business of the caller).

        Args:
            prompt_token_ids: at least one token, each below the size of the vocabulary.
            params: how it is answered.
            deadline_s: moment at which the answer should be complete, on the clock of `time.monotonic`.

        Returns:
            Its key in the updates.

        Raises:
            RequestRejectedError: it can never run.
            ConfigError: it wants stop strings, but the checkpoint has no tokenizer.
        """
        self._check(prompt_token_ids, params)
        stop_ids = set(params.stop_token_ids)
        if not params.ignore_eos:
            stop_ids.update(self.vocabulary.eos_token_ids)
        request = Request(
            request_id=next(self._ids),
            prompt_token_ids=tuple(prompt_token_ids),
            max_new_tokens=params.max_new_tokens,
            stop_token_ids=frozenset(stop_ids),
            arrival_s=time.monotonic(),
            deadline_s=deadline_s,
        )
        seed = self._seeds.getrandbits(63) if params.seed is None else params.seed
        self._loop.add(Submission(request, params, seed))
        if self.vocabulary.tokenizer is not None:
            self._texts[request.request_id] = _Text(Detokenizer(self.vocabulary.tokenizer), StopStrings(params.stop))
        return request.request_id

    def abort(self, request_id: int) -> Update | None:
        """End a request because nobody waits for it; None where it is not known or has ended."""
        ended = self._loop.finish(request_id, FinishReason.ABORT)
        return None if ended is None else self._update(ended, time.monotonic())

    def step(self) -> list[Update]:
        """One turn of the loop."""
        new_tokens = self._loop.step()
        now_s = time.monotonic()
        return [self._update(new, now_s) for new in new_tokens]

    def _update(self, new: NewTokens, now_s: float) -> Update:
        reason = new.finish_reason
        if not self._texts:
            return Update(new.request_id, new.token_ids, "", new.logprobs, reason, now_s, new.error)
        text, is_stopped = self._text(new)
        if is_stopped:
            reason = FinishReason.STOP
            self._loop.finish(new.request_id, reason)
        if reason is not None:
            self._texts.pop(new.request_id, None)
        return Update(new.request_id, new.token_ids, text, new.logprobs, reason, now_s, new.error)

    def _text(self, new: NewTokens) -> tuple[str, bool]:
        text = self._texts.get(new.request_id)
        if text is None:
            return "", False
        is_last = new.finish_reason is not None
        passage = text.stops.add(text.detokenizer.add(new.token_ids, is_last), is_last)
        return passage.text, passage.is_stopped

    def _check(self, prompt_token_ids: Sequence[int], params: SamplingParams) -> None:
        if params.stop and self.vocabulary.tokenizer is None:
            raise ConfigError("stop strings need a tokenizer, and the checkpoint has none")
        for token in (min(prompt_token_ids, default=0), max(prompt_token_ids, default=0)):
            if not 0 <= token < self.vocabulary.size:
                raise RequestRejectedError(f"token id {token} is outside the vocabulary of {self.vocabulary.size}")
