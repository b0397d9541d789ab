"""Published blocks that nobody uses any more, copied to the host before they are given away.

A block is cold when its last owner has left. Each step takes a few cold blocks along and copies them beside its work;
once the step is committed their prefixes can be found on the host, and a request that starts with one gets it back by
copy instead of computing it again. The host pool is shared with swapped requests, which come first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from engine.scheduling.prefix_cache import PrefixCache, PublishedBlock
from engine.scheduling.request import Request


@dataclass(frozen=True, slots=True)
class ColdCopy:
    """The copy of one published block to a block of the host."""

    digest: bytes
    source: PublishedBlock
    host_block_id: int


class ColdBlocks:
    """Decides which published blocks to copy, at most `max_copies` a step, and remembers those that are on the host.

    Both caches have to be of the same namespace.
    """

    def __init__(self, published: PrefixCache, on_host: PrefixCache, max_copies: int) -> None:
        self._published = published
        self._on_host = on_host
        self._device = published.pool
        self._host = on_host.pool
        self._max_copies = max_copies
        self._candidates: OrderedDict[int, None] = OrderedDict()
        self._device.on_idle = self._note

    def find(self, request: Request, num_found: int) -> list[int]:
        """Host blocks that continue the `num_found` blocks of a request found on the device, without taking them."""
        return self._on_host.find(request, num_found)

    def take(self) -> list[ColdCopy]:
        """Begin to copy the blocks that have been cold for longest; both sides are held until `land` or `drop`."""
        copies: list[ColdCopy] = []
        while self._candidates and len(copies) < self._max_copies and self._host.num_free > 0:
            block_id, _ = self._candidates.popitem(last=False)
            digest = self._published.digest_of(block_id)
            if digest is None or digest in self._on_host or self._device.num_owners(block_id) > 0:
                continue
            self._device.share([block_id])
            copies.append(ColdCopy(digest, self._published[digest], self._host.allocate(1)[0]))
        return copies

    def land(self, copies: list[ColdCopy]) -> None:
        """The copies have arrived: their prefixes can be found on the host."""
        for copy in copies:
            if copy.digest not in self._on_host:
                self._on_host.remember(copy.digest, PublishedBlock(copy.host_block_id, copy.source.token_ids))
        self.drop(copies)

    def drop(self, copies: list[ColdCopy]) -> None:
        """Let go of both sides of copies."""
        self._device.release([copy.source.block_id for copy in copies])
        self._host.release([copy.host_block_id for copy in copies])

    def clear(self) -> None:
        """Forget every prefix on the host."""
        self._on_host.clear()
        self._candidates.clear()

    def _note(self, block_id: int) -> None:
        digest = self._published.digest_of(block_id)
        if digest is not None and digest not in self._on_host:
            self._candidates[block_id] = None
