"""Whether the KV memory can take one more request: three rules, from careless to careful.

A rule that looks only at the blocks free now lets in requests whose growth nobody has reserved; they are preempted
and computed again. One that reserves every request at its full length leaves most of the memory empty. The projected
peak asks how full the pool will be at its fullest moment, given that requests leave at different times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.scheduling.block_pool import BlockPool
from engine.scheduling.length_history import LengthHistory
from engine.scheduling.request import Request


class AdmissionRule(Protocol):
    """Decides whether `candidate` fits beside `running` into the memory of `pool`.

    `prefix` are the published blocks that the candidate would share.
    """

    def admits(self, candidate: Request, prefix: Sequence[int], running: Sequence[Request], pool: BlockPool) -> bool:
        """True where the candidate may take blocks."""

    def learn(self, ended: Request) -> None:
        """Take note of a request whose answer has come to its own end."""


@dataclass(frozen=True, slots=True)
class PresentlyFree:
    """Enough blocks are free now for the known tokens of everyone who is let in."""

    def admits(self, candidate: Request, prefix: Sequence[int], running: Sequence[Request], pool: BlockPool) -> bool:
        """Compare the free blocks with those still to be taken for prompts."""
        promised = sum(_num_missing(request, len(request.block_ids), pool) for request in running)
        return promised + _num_missing(candidate, _num_in_use(prefix, pool), pool) <= pool.num_free

    def learn(self, ended: Request) -> None:
        """Nothing to learn: no forecast is made."""


@dataclass(frozen=True, slots=True)
class FullLength:
    """Every request is given room for its longest possible answer from the start, shared prefixes included."""

    def admits(self, candidate: Request, prefix: Sequence[int], running: Sequence[Request], pool: BlockPool) -> bool:
        """Compare the pool with the sum of the full lengths."""
        return sum(pool.blocks_for(request.max_tokens) for request in (*running, candidate)) <= pool.num_blocks

    def learn(self, ended: Request) -> None:
        """Nothing to learn: no forecast is made."""


class ProjectedPeak:
    """The fullest moment to come stays within the pool, less `reserve_blocks` kept free for errors of the forecast.

    Without `lengths` every answer is expected to reach its limit, or the caller's forecast.
    """

    def __init__(self, reserve_blocks: int = 0, lengths: LengthHistory | None = None) -> None:
        self._reserve_blocks = reserve_blocks
        self._lengths = lengths

    def admits(self, candidate: Request, prefix: Sequence[int], running: Sequence[Request], pool: BlockPool) -> bool:
        """Compare the pool with the projected peak; an empty engine always takes the next request."""
        if not running:
            return True
        owned = [len(request.block_ids) - pool.num_shared(request.block_ids) for request in running]
        num_shared = pool.num_used - sum(owned) + sum(pool.num_owners(block_id) == 0 for block_id in prefix)
        forecasts = [self._forecast(r, len(r.block_ids) - n, pool) for r, n in zip(running, owned, strict=True)]
        forecasts.append(self._forecast(candidate, len(prefix), pool))
        return num_shared + projected_peak(forecasts, pool.block_size) <= pool.num_blocks - self._reserve_blocks

    def learn(self, ended: Request) -> None:
        """Sharpen the forecast with the length of one more answer."""
        if self._lengths is not None:
            self._lengths.add(ended.max_new_tokens, ended.num_generated)

    def _forecast(self, request: Request, num_shared: int, pool: BlockPool) -> Forecast:
        num_left = request.num_left if self._lengths is None else self._lengths.num_left(request)
        return Forecast(request.num_wanted - num_shared * pool.block_size, num_left)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Tokens of one request in blocks of its own, and how many more it will add."""

    num_used: int
    num_left: int


def projected_peak(forecasts: Iterable[Forecast], block_size: int) -> int:
    """Most blocks that requests will hold at once when each adds a token per step and leaves when it is done.

    Sorted by what is left, longest first, the requests still there when the i-th leaves are the first i: each of them
    has then added as many tokens as the i-th had left. The peak is the largest of these sums, each request rounded up
    to blocks. Source: the memory estimate of LightLLM's router.
    """
    peak = full_blocks = 0
    remainders: Counter[int] = Counter()
    longest_first = sorted(forecasts, key=lambda forecast: forecast.num_left, reverse=True)
    for count, forecast in enumerate(longest_first, start=1):
        full_blocks += forecast.num_used // block_size
        remainders[forecast.num_used % block_size] += 1
        grown_blocks, rest = divmod(forecast.num_left, block_size)
        begun_blocks = sum(number * -(-(remainder + rest) // block_size) for remainder, number in remainders.items())
        peak = max(peak, full_blocks + count * grown_blocks + begun_blocks)
    return peak


def _num_missing(request: Request, num_held: int, pool: BlockPool) -> int:
    return max(0, pool.blocks_for(request.num_wanted) - num_held)


def _num_in_use(block_ids: Iterable[int], pool: BlockPool) -> int:
    return sum(pool.num_owners(block_id) > 0 for block_id in block_ids)
