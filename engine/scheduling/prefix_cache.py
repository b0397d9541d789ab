"""Reuse of KV blocks between requests that start with the same tokens.

A full block is found by the digest of its own token ids and of the digest before it, so that it stands for the whole
prefix up to its end. Only blocks whose KV is written are published, and token ids are compared on every hit.
Source: automatic prefix caching in vLLM; PagedAttention, Kwon et al. 2023, section 4.4.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from engine.scheduling.block_pool import BlockPool
from engine.scheduling.request import Request


@dataclass(frozen=True, slots=True)
class PublishedBlock:
    """A block of the pool and the token ids whose KV it holds."""

    block_id: int
    token_ids: tuple[int, ...]


def block_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Digest of a prefix that ends with `token_ids` and continues the prefix of digest `parent`."""
    return blake2b(parent + array("q", token_ids).tobytes(), digest_size=16).digest()


class PrefixCache:
    """Finds published blocks of `pool` by what they hold.

    `namespace` names everything else that the KV depends on (model, KV type, adapter): equal tokens under another
    namespace are another prefix.
    """

    def __init__(
        self,
        pool: BlockPool,
        namespace: str = "",
        digest: Callable[[bytes, Sequence[int]], bytes] = block_digest,
    ) -> None:
        self.pool = pool
        self._root = namespace.encode()
        self._digest = digest
        self._published: dict[bytes, PublishedBlock] = {}
        self._digest_of_block: dict[int, bytes] = {}
        pool.on_evict = self._forget

    def __len__(self) -> int:
        return len(self._published)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._published

    def __getitem__(self, digest: bytes) -> PublishedBlock:
        return self._published[digest]

    def find(self, request: Request, first_block: int = 0) -> list[int]:
        """Blocks that already hold a request from its `first_block` on, without taking them.

        The last known token is never covered: its logits are what the request is waiting for.
        """
        block_ids: list[int] = []
        for index in range(first_block, (request.num_known - 1) // self.pool.block_size):
            published = self._published.get(self._digest_at(request, index))
            if published is None or published.token_ids != self._tokens_at(request, index):
                break
            block_ids.append(published.block_id)
        return block_ids

    def publish(self, request: Request, num_written: int) -> None:
        """Offer the full blocks of a request to others; the KV of its first `num_written` tokens must be written.

        A prefix that is published already stays where it is: the request keeps its own copy to itself.
        """
        for index in range(request.num_published, num_written // self.pool.block_size):
            digest = self._digest_at(request, index)
            if digest not in self._published:
                self.remember(digest, PublishedBlock(request.block_ids[index], self._tokens_at(request, index)))
            request.num_published = index + 1

    def clear(self) -> None:
        """Forget everything published; blocks without an owner become empty."""
        self.pool.forget_kept(self._digest_of_block)
        self._published.clear()
        self._digest_of_block.clear()

    def digest_of(self, block_id: int) -> bytes | None:
        """Digest of the prefix that a block ends; None where the block is not published."""
        return self._digest_of_block.get(block_id)

    def remember(self, digest: bytes, published: PublishedBlock) -> None:
        """Publish a block of the pool that has an owner, under a digest that is not published yet."""
        self._published[digest] = published
        self._digest_of_block[published.block_id] = digest
        self.pool.keep(published.block_id)

    def _forget(self, block_id: int) -> None:
        del self._published[self._digest_of_block.pop(block_id)]

    def _digest_at(self, request: Request, index: int) -> bytes:
        digests = request.block_digests
        while len(digests) <= index:
            parent = digests[-1] if digests else self._root
            digests.append(self._digest(parent, self._tokens_at(request, len(digests))))
        return digests[index]

    def _tokens_at(self, request: Request, index: int) -> tuple[int, ...]:
        start = index * self.pool.block_size
        return tuple(request.token_ids[start : start + self.pool.block_size])
