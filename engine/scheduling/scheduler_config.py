"""What a scheduler is told once, when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Preemption(StrEnum):
    """How a running request gives up its blocks: its KV is computed again later, or copied to the host and back."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Sizes of the scheduler's world.

    Layouts that give each request one contiguous stretch of KV are described by `block_size = max_len` and one block
    per stretch, without prefix caching. `max_step_tokens` is the chunk budget of a step. `max_failures` is how often a
    request may fail on its own before it is given up. With `max_draft_tokens` above 0 no step is planned for a request
    whose last one is still in flight: how many of its drafts are accepted decides where the next one starts.
    `max_cold_copies` is how many published blocks without an owner a step copies to the host.
    """

    num_blocks: int
    block_size: int
    max_len: int
    max_running: int
    max_step_tokens: int
    num_host_blocks: int = 0
    preemption: Preemption = Preemption.RECOMPUTE
    prefix_caching: bool = True
    prefix_namespace: str = ""
    max_draft_tokens: int = 0
    max_failures: int = 3
    max_cold_copies: int = 0
