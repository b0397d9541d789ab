"""Offline generation: a list of prompts in, a list of answers out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from engine.assembly import build_core
from engine.config import EngineConfig
from engine.core import EngineCore, Update
from engine.errors import ConfigError
from engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from engine.execution.step_results import TokenLogprobs
    from engine.scheduling.request import FinishReason

_IDLE_S = 0.0005


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought.

    Attributes:
        token_ids: generated tokens, the end of sequence included where it ended the request.
        text: of these tokens, cut before a stop string; empty where the checkpoint has no tokenizer.
        finish_reason: why it ended.
        ttft_s: from the start of the request to its first token, seconds.
        itl_s: from each token to the next.
        logprobs: one entry a token where they were wanted.
        error: what failed, with the reason `error`.
    """

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    ttft_s: float | None
    itl_s: tuple[float, ...]
    logprobs: tuple[TokenLogprobs, ...]
    error: str | None


class LLM:
    """An engine with its model loaded."""

    def __init__(self, model: str, **options: Any) -> None:
        """Load a model.

        Args:
            model: folder of a Hugging Face checkpoint.
            options: see `EngineConfig`.

        Raises:
            ConfigError: an option is unknown, out of range, or does not fit the model or the machine.
            CheckpointError: the checkpoint cannot be used.
        """
        self._load(EngineConfig.from_options({"model": model, **options}))

    @classmethod
    def from_config(cls, config: EngineConfig) -> LLM:
        """Load a model with options that are checked already; errors are those of the constructor."""
        llm = cls.__new__(cls)
        llm._load(config)
        return llm

    def _load(self, config: EngineConfig) -> None:
        self.config = config
        self.core: EngineCore = build_core(config)

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
    ) -> list[Answer]:
        """Answer prompts, all together.

        Args:
            prompts: texts, or token ids.
            params: for all prompts, or one for each.

        Returns:
            One answer a prompt, in order; `params.n` answers for a prompt stand one behind the other.

        Raises:
            RequestRejectedError: a prompt can never run; none of them has then.
            ConfigError: the numbers of prompts and params differ.
        """
        all_params = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(all_params) != len(prompts):
            raise ConfigError(f"{len(prompts)} prompts, but sampling options for {len(all_params)}")
        progress = self._submit(prompts, all_params)
        self.run(progress)
        return [item.answer() for item in progress.values()]

    def run(self, progress: dict[int, Progress]) -> None:
        """Turn the loop until every request has ended."""
        while not self.core.is_idle:
            self.advance(progress)

    def advance(self, progress: dict[int, Progress]) -> None:
        """One turn of the loop; naps where nothing may run yet (a batch that is still being formed)."""
        num_steps = self.core.counters.steps
        updates = self.core.step()
        for update in updates:
            progress[update.request_id].add(update)
        if not updates and self.core.counters.steps == num_steps and not self.core.is_idle:
            time.sleep(_IDLE_S)

    def _submit(self, prompts: Sequence[str | Sequence[int]], params: Sequence[SamplingParams]) -> dict[int, Progress]:
        progress: dict[int, Progress] = {}
        encoded = [self.core.encode(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
        try:
            for token_ids, one in zip(encoded, params, strict=True):
                for single in draws(one):
                    progress[self.core.submit(token_ids, single)] = Progress(time.monotonic())
        except Exception:
            for request_id in progress:
                self.core.abort(request_id)
            raise
        return progress


def draws(params: SamplingParams) -> list[SamplingParams]:
    """The `n` requests behind one: each with a seed of its own, counted up from the given one."""
    if params.n == 1:
        return [params]
    seeds = [None if params.seed is None else (params.seed + index) % 2**63 for index in range(params.n)]
    return [replace(params, n=1, seed=seed) for seed in seeds]


@dataclass(slots=True)
class Progress:
    """What has come for one request so far; `started_s` and `times_s` are on the clock of `time.monotonic`."""

    started_s: float
    token_ids: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    last: Update | None = None

    def add(self, update: Update) -> None:
        """Take in an update."""
        self.token_ids += update.token_ids
        self.times_s += [update.at_s] * len(update.token_ids)
        if update.text:
            self.texts.append(update.text)
        self.logprobs += update.logprobs
        if update.finish_reason is not None:
            self.last = update

    def answer(self) -> Answer:
        """The whole answer; the last update has come."""
        assert self.last is not None, "a request is asked for its answer before it has ended"
        assert self.last.finish_reason is not None
        return Answer(
            token_ids=tuple(self.token_ids),
            text="".join(self.texts),
            finish_reason=self.last.finish_reason,
            ttft_s=self.times_s[0] - self.started_s if self.times_s else None,
            itl_s=tuple(later - sooner for sooner, later in pairwise(self.times_s)),
            logprobs=tuple(self.logprobs),
            error=self.last.error,
        )
