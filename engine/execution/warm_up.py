"""Runs each kind of forward pass once before the first request, so that no step has to compile or load a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduling.plan import ScheduledRequest

if TYPE_CHECKING:
    from engine.execution.forward import EagerPass

_NEW_TOKENS = (1, 2, 3, 5, 9, 16, 17, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)


def warm_up(forward: EagerPass, block_size: int, longest: int) -> None:
    """Feed prompts of several lengths, alone and beside one that decodes; what they write there is never read.

    Args:
        forward: pass to warm up; its cache is empty.
        block_size: tokens in a KV block.
        longest: tokens in a step at most.
    """
    for num_tokens in sorted({min(length, longest) for length in (*_NEW_TOKENS, longest)}):
        forward.run([_prompt(0, num_tokens, 0, block_size)], [0])
        num_blocks = -(-num_tokens // block_size)
        if num_tokens < longest:
            forward.run([_prompt(0, num_tokens, 0, block_size), _prompt(1, 1, num_blocks, block_size)], [0, 0])


def _prompt(request_id: int, num_tokens: int, first_block: int, block_size: int) -> ScheduledRequest:
    blocks = tuple(range(first_block, first_block - (-num_tokens // block_size)))
    return ScheduledRequest(request_id, 0, num_tokens, blocks, (0,) * num_tokens, (), samples=True)
