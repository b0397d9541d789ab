"""Runs each kind of forward pass once before the first request, so that no step has to compile or load a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduling.plan import ScheduledRequest

if TYPE_CHECKING:
    from engine.execution.forward import EagerPass

_NEW_TOKENS = (1, 2, 16, 17, 64, 256)


def warm_up(forward: EagerPass, block_size: int, longest: int) -> None:
    """Feed prompts of several lengths into the first blocks of an empty cache; what they write there is never read.

    Args:
        forward: pass to warm up.
        block_size: tokens in a KV block.
        longest: tokens in a step at most.
    """
    for num_tokens in sorted({min(length, longest) for length in (*_NEW_TOKENS, longest)}):
        blocks = tuple(range(-(-num_tokens // block_size)))
        forward.run([ScheduledRequest(0, 0, num_tokens, blocks, (0,) * num_tokens, (), samples=True)], [0])
