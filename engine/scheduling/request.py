"""One request: what was asked, which tokens are known, and how far its KV cache has come.

Three counts describe where a request stands; everything the scheduler does moves one of them:

    0 ........ num_computed ........ num_known ........ num_wanted
      KV written, or being      token ids the host     num_known plus the tokens that steps
      written by a step that    knows: prompt and      in flight are sampling right now
      is in flight              generated tokens

A new request, a prefix hit, a chunk of a long prompt, a decode step, a rejected draft, a preemption and a retry
differ only in the distance between the first and the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import RequestRejectedError


class RequestState(StrEnum):
    """Where a request is kept.

    WAITING: in the waiting queue and without blocks. RUNNING: holds device blocks. SWAPPED: in the waiting queue, its
    KV in host blocks. FINISHED: has its final output; may still hold blocks that a step in flight reads.
    """

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended: a stop token, its length limit, the caller, or a step that failed at every try."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(slots=True, eq=False)
class Request:
    """What the caller asks for (first block) and what the scheduler keeps about it (second block).

    Times are in seconds on the caller's clock. `deadline_s` is the moment at which the answer should be complete; None
    means that nobody waits for it. `expected_new_tokens` is what admission plans with: the caller's forecast, or the
    limit `max_new_tokens` where there is none.
    """

    request_id: int
    prompt_token_ids: tuple[int, ...]
    max_new_tokens: int
    stop_token_ids: frozenset[int] = frozenset()
    arrival_s: float = 0.0
    deadline_s: float | None = None
    expected_new_tokens: int | None = None

    state: RequestState = field(default=RequestState.WAITING, init=False)
    finish_reason: FinishReason | None = field(default=None, init=False)
    token_ids: list[int] = field(init=False)
    max_tokens: int = field(init=False)
    num_computed: int = field(default=0, init=False)
    num_pending: int = field(default=0, init=False)
    draft_token_ids: tuple[int, ...] = field(default=(), init=False)
    block_ids: list[int] = field(default_factory=list, init=False)
    host_block_ids: list[int] = field(default_factory=list, init=False)
    block_digests: list[bytes] = field(default_factory=list, init=False)
    num_published: int = field(default=0, init=False)
    num_steps_in_flight: int = field(default=0, init=False)
    num_failures: int = field(default=0, init=False)
    num_preemptions: int = field(default=0, init=False)
    num_cached: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Check the question and start with the prompt as the only known tokens."""
        if not self.prompt_token_ids:
            raise RequestRejectedError(f"request {self.request_id}: the prompt is empty")
        if self.max_new_tokens < 1:
            limit = self.max_new_tokens
            raise RequestRejectedError(f"request {self.request_id}: max_new_tokens is {limit}, must be at least 1")
        self.token_ids = list(self.prompt_token_ids)
        self.max_tokens = len(self.token_ids) + self.max_new_tokens

    @property
    def num_known(self) -> int:
        """Tokens whose ids the host knows."""
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        """Known tokens after the prompt."""
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def num_wanted(self) -> int:
        """Tokens that should have a KV entry: the known ones and those being sampled by steps in flight."""
        return len(self.token_ids) + self.num_pending

    @property
    def is_decoding(self) -> bool:
        """True where one token is missing, as after each generated token."""
        return len(self.token_ids) + self.num_pending - self.num_computed == 1

    @property
    def num_left(self) -> int:
        """New tokens that admission expects from now on; at least 1 while the request is unfinished."""
        expected = self.max_tokens - len(self.prompt_token_ids)
        if self.expected_new_tokens is not None:
            expected = min(expected, self.expected_new_tokens)
        return max(1, expected - self.num_generated - self.num_pending)

    @property
    def is_finished(self) -> bool:
        """True once the final output has been handed out."""
        return self.state is RequestState.FINISHED
