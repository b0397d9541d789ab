"""Drafts of the next tokens of a request: guessed from its own text, or by a smaller model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from engine.config import MAX_NGRAM

if TYPE_CHECKING:
    from torch import Tensor

    from engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Speculating:
    """A request for which drafts are wanted.

    Attributes:
        request_id: key.
        token_ids: all its known tokens; only read.
        params: how its tokens are chosen: drafts are chosen the same way.
        seed: of its random numbers.
        num_drafts: drafts wanted at most.
    """

    request_id: int
    token_ids: Sequence[int]
    params: SamplingParams
    seed: int
    num_drafts: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts by request.

    Attributes:
        token_ids: drafts of each request, in order; a request may have none.
        probs: for requests whose drafts were drawn, the distribution (K, V) each one was drawn from, on the device.
    """

    token_ids: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    probs: Mapping[int, Tensor] = field(default_factory=dict)


class Proposer(Protocol):
    """Proposes drafts; what it keeps about a request is dropped by `forget`."""

    def propose(self, requests: Sequence[Speculating]) -> Proposal:
        """Drafts for requests that have just got a token."""
        ...

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        ...


class NgramProposer:
    """Finds the last tokens of a request earlier in it, and proposes what followed there.

    The longest that occurs wins, and of its places the latest. An index per request grows with its tokens:
    a step costs as many look-ups as it has new tokens. Source: prompt lookup decoding (Saxena 2023).
    """

    def __init__(self, min_size: int = 2, max_size: int = MAX_NGRAM) -> None:
        """Look for at least `min_size` and at most `max_size` last tokens."""
        self._sizes = tuple(range(max_size, min_size - 1, -1))
        self._indexes: dict[int, _NgramIndex] = {}

    def propose(self, requests: Sequence[Speculating]) -> Proposal:
        """See `Proposer`."""
        drafts = {}
        for request in requests:
            index = self._indexes.setdefault(request.request_id, _NgramIndex(self._sizes))
            drafts[request.request_id] = index.follow(request.token_ids, request.num_drafts)
        return Proposal(drafts)

    def forget(self, request_id: int) -> None:
        """See `Proposer`."""
        self._indexes.pop(request_id, None)


class _NgramIndex:
    """For each n-gram of a text the place behind its latest occurrence, the end of the text left out."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes
        self._behind: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0

    def follow(self, tokens: Sequence[int], count: int) -> tuple[int, ...]:
        """Up to `count` tokens that followed the last tokens of the text where they occurred before."""
        for end in range(self._num_indexed + 1, len(tokens)):
            for size in self._sizes:
                if end >= size:
                    self._behind[tuple(tokens[end - size : end])] = end
        self._num_indexed = max(self._num_indexed, len(tokens) - 1)
        for size in self._sizes:
            place = self._behind.get(tuple(tokens[-size:])) if len(tokens) > size else None
            if place is not None:
                return tuple(tokens[place : place + count])
        return ()
