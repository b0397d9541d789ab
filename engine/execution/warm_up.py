"""Runs each kind of forward pass once before the first request, so that no step has to compile or load a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduling.plan import ScheduledRequest

if TYPE_CHECKING:
    from engine.execution.forward import EagerPass

_NEW_TOKENS = (1, 2, 3, 5, 9, 16, 17, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
_REQUESTS = (3, 16, 32, 64)
_SHORT_PROMPT = 18


def warm_up(forward: EagerPass, block_size: int, longest: int) -> None:
    """Feed prompts of several lengths, alone and beside one that decodes; what they write there is never read.

    Args:
        forward: pass to warm up; its cache is empty.
        block_size: tokens in a KV block.
        longest: tokens in a step at most, and no more than the cache holds.
    """
    for num_tokens in sorted({min(length, longest) for length in (*_NEW_TOKENS, longest)}):
        first = _prompt(num_tokens, block_size)
        forward.run([first], [0])
        if num_tokens < longest:
            forward.run([first, _prompt(1, block_size)], [0, 0])
    for num_requests in _REQUESTS:
        if num_requests * _SHORT_PROMPT <= longest:
            # They share their blocks: which of them writes last makes no difference to anyone.
            forward.run([_prompt(_SHORT_PROMPT, block_size)] * num_requests, [0] * num_requests)


def _prompt(num_tokens: int, block_size: int) -> ScheduledRequest:
    blocks = tuple(range(-(-num_tokens // block_size)))
    return ScheduledRequest(0, 0, num_tokens, blocks, (0,) * num_tokens, (), samples=True)
