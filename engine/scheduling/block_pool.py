"""Fixed-size KV blocks with reference counts.

A block is in exactly one of three places:

    used    one or more owners (a request, or several that share a prefix)
    kept    no owner, but its content is published in the prefix cache: given away last, least recently used first
    empty   no owner and nothing worth keeping: given away first

A layout that reserves a contiguous stretch per request is the same pool with blocks as long as the longest request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from engine.errors import OutOfBlocksError


class BlockPool:
    """Hands out block numbers 0 to `num_blocks - 1`, each holding the KV of `block_size` tokens.

    `on_idle` is told of each kept block that loses its last owner, `on_evict` of each that is given away.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.peak_used = 0
        self.on_evict: Callable[[int], None] | None = None
        self.on_idle: Callable[[int], None] | None = None
        self._owners = [0] * num_blocks
        self._is_kept = [False] * num_blocks
        self._empty = list(range(num_blocks - 1, -1, -1))
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` can give, by forgetting published content where it has to."""
        return len(self._empty) + len(self._kept)

    @property
    def num_used(self) -> int:
        """Blocks with at least one owner."""
        return self.num_blocks - self.num_free

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold the KV of `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def num_owners(self, block_id: int) -> int:
        """How many owners a block has; 0 where it is free."""
        return self._owners[block_id]

    def allocate(self, count: int) -> list[int]:
        """Give `count` blocks to one owner, or none at all.

        Raises:
            OutOfBlocksError: fewer are free.
        """
        if count > self.num_free:
            raise OutOfBlocksError(f"{count} KV blocks wanted, {self.num_free} of {self.num_blocks} free")
        block_ids = [self._take_free() for _ in range(count)]
        self.peak_used = max(self.peak_used, self.num_used)
        return block_ids

    def share(self, block_ids: Iterable[int]) -> None:
        """Add an owner to published blocks, used or kept."""
        for block_id in block_ids:
            if self._owners[block_id] == 0:
                del self._kept[block_id]
            self._owners[block_id] += 1
        self.peak_used = max(self.peak_used, self.num_used)

    def release(self, block_ids: Sequence[int]) -> None:
        """Take one owner from each block of a table, the tail first.

        The tail of a prefix is of use to fewer requests than its head, so it has to be the first to be given away.

        Raises:
            ValueError: a block has no owner. Nothing is worse for a KV cache than one block given to two requests.
        """
        for block_id in reversed(block_ids):
            if self._owners[block_id] == 0:
                raise ValueError(f"KV block {block_id} is released but has no owner")
            self._owners[block_id] -= 1
            if self._owners[block_id] == 0:
                self._put_back(block_id)

    def keep(self, block_id: int) -> None:
        """Mark a used block as published: its content survives its last owner until the room is needed."""
        self._is_kept[block_id] = True

    def forget_kept(self, block_ids: Iterable[int]) -> None:
        """Undo `keep`: those blocks that have no owner are empty from now on, the others once they are released."""
        for block_id in block_ids:
            self._is_kept[block_id] = False
        self._empty += self._kept
        self._kept.clear()

    def num_shared(self, block_ids: Sequence[int]) -> int:
        """How many blocks at the head of a table have other owners too (owners only become fewer along a prefix)."""
        low, high = 0, len(block_ids)
        while low < high:
            middle = (low + high) // 2
            if self._owners[block_ids[middle]] > 1:
                low = middle + 1
            else:
                high = middle
        return low

    def _take_free(self) -> int:
        if self._empty:
            block_id = self._empty.pop()
        else:
            block_id, _ = self._kept.popitem(last=False)
            self._is_kept[block_id] = False
            if self.on_evict is not None:
                self.on_evict(block_id)
        self._owners[block_id] = 1
        return block_id

    def _put_back(self, block_id: int) -> None:
        if self._is_kept[block_id]:
            self._kept[block_id] = None
            if self.on_idle is not None:
                self.on_idle(block_id)
        else:
            self._empty.append(block_id)
