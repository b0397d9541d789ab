from __future__ import annotations

import pytest

from engine.errors import OutOfBlocksError
from engine.scheduling.block_pool import BlockPool


def test_gives_all_or_nothing() -> None:
    pool = BlockPool(num_blocks=3, block_size=4)
    pool.allocate(2)
    with pytest.raises(OutOfBlocksError, match="2 KV blocks wanted, 1 of 3 free"):
        pool.allocate(2)
    assert pool.num_free == 1


def test_a_block_is_free_only_after_its_last_owner_releases_it() -> None:
    pool = BlockPool(num_blocks=1, block_size=4)
    block = pool.allocate(1)
    pool.share(block)
    pool.release(block)
    assert pool.num_free == 0
    pool.release(block)
    assert pool.num_free == 1


def test_releasing_a_free_block_is_an_error() -> None:
    pool = BlockPool(num_blocks=2, block_size=4)
    block = pool.allocate(1)
    pool.release(block)
    with pytest.raises(ValueError, match="has no owner"):
        pool.release(block)


def test_published_blocks_are_given_away_after_empty_ones_and_the_tail_before_the_head() -> None:
    pool = BlockPool(num_blocks=4, block_size=4)
    evicted: list[int] = []
    pool.on_evict = evicted.append
    head, tail, private = pool.allocate(3)
    pool.keep(head)
    pool.keep(tail)
    pool.release([head, tail, private])
    pool.allocate(2)
    assert evicted == []
    pool.allocate(2)
    assert evicted == [tail, head]


def test_a_published_block_can_be_shared_again_after_its_last_owner_left() -> None:
    pool = BlockPool(num_blocks=2, block_size=4)
    block = pool.allocate(1)
    pool.keep(block[0])
    pool.release(block)
    pool.share(block)
    assert pool.num_owners(block[0]) == 1
    assert pool.allocate(1) != block


def test_forgotten_blocks_are_empty_at_once_or_after_their_release() -> None:
    pool = BlockPool(num_blocks=2, block_size=4)
    evicted: list[int] = []
    pool.on_evict = evicted.append
    used, unused = pool.allocate(2)
    pool.keep(used)
    pool.keep(unused)
    pool.release([unused])
    pool.forget_kept([used, unused])
    pool.release([used])
    assert sorted(pool.allocate(2)) == sorted([used, unused])
    assert evicted == []


def test_counts_the_shared_head_of_a_table() -> None:
    pool = BlockPool(num_blocks=6, block_size=4)
    table = pool.allocate(5)
    assert pool.num_shared(table) == 0
    pool.share(table[:3])
    assert pool.num_shared(table) == 3


def test_remembers_the_fullest_moment() -> None:
    pool = BlockPool(num_blocks=6, block_size=4)
    pool.release(pool.allocate(5))
    pool.allocate(2)
    assert (pool.peak_used, pool.num_used) == (5, 2)


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(0, 0), (1, 1), (4, 1), (5, 2)])
def test_rounds_tokens_up_to_blocks(num_tokens: int, num_blocks: int) -> None:
    assert BlockPool(num_blocks=6, block_size=4).blocks_for(num_tokens) == num_blocks
