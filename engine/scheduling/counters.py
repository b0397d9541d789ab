"""What a scheduler counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What the scheduler did since it was made; counts of events unless the name says tokens."""

    steps: int = 0
    preemptions: int = 0
    swaps_out: int = 0
    failed_steps: int = 0
    scheduled_tokens: int = 0
    prefix_hit_tokens: int = 0
    host_hit_tokens: int = 0
    cold_copies: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
