from __future__ import annotations

from collections.abc import Sequence

from engine.scheduling.block_pool import BlockPool
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import Request

BLOCK_SIZE = 4


def written_request(pool: BlockPool, cache: PrefixCache, prompt: Sequence[int]) -> Request:
    """A request whose prompt has its KV written and published."""
    request = Request(0, tuple(prompt), 10)
    request.block_ids = pool.allocate(pool.blocks_for(len(prompt)))
    cache.publish(request, len(prompt))
    return request


def test_finds_the_full_blocks_of_a_common_prefix() -> None:
    pool = BlockPool(8, BLOCK_SIZE)
    cache = PrefixCache(pool)
    first = written_request(pool, cache, range(12))
    assert cache.find(Request(1, (*range(8), 99, 98, 97, 96, 95), 10)) == first.block_ids[:2]


def test_leaves_the_last_token_of_a_fully_cached_prompt_to_be_computed() -> None:
    pool = BlockPool(8, BLOCK_SIZE)
    cache = PrefixCache(pool)
    first = written_request(pool, cache, range(8))
    assert cache.find(Request(1, tuple(range(8)), 10)) == first.block_ids[:1]
    assert cache.find(Request(2, tuple(range(9)), 10)) == first.block_ids[:2]


def test_publishes_full_blocks_only() -> None:
    pool = BlockPool(8, BLOCK_SIZE)
    cache = PrefixCache(pool)
    written_request(pool, cache, range(7))
    assert len(cache) == 1


def test_equal_tokens_after_another_beginning_are_another_prefix() -> None:
    pool = BlockPool(8, BLOCK_SIZE)
    cache = PrefixCache(pool)
    written_request(pool, cache, (1, 1, 1, 1, 5, 6, 7, 8))
    assert cache.find(Request(1, (5, 6, 7, 8, 0), 10)) == []
    assert len(cache.find(Request(2, (1, 1, 1, 1, 9, 9, 9, 9, 5, 6, 7, 8, 0), 10))) == 1


def test_compares_token_ids_where_digests_collide() -> None:
    def same_digest_for_all(parent: bytes, token_ids: Sequence[int]) -> bytes:
        return b"collision"

    pool = BlockPool(8, BLOCK_SIZE)
    cache = PrefixCache(pool, digest=same_digest_for_all)
    first = written_request(pool, cache, range(4))
    assert cache.find(Request(1, (*range(4), 4), 10)) == first.block_ids
    assert cache.find(Request(2, (7, 7, 7, 7, 7), 10)) == []


def test_another_namespace_gives_the_same_tokens_another_digest() -> None:
    digests = []
    for namespace in ("float16", "fp8"):
        pool = BlockPool(8, BLOCK_SIZE)
        digests.append(written_request(pool, PrefixCache(pool, namespace), range(4)).block_digests[0])
    assert digests[0] != digests[1]


def test_a_block_given_away_is_not_found_any_more() -> None:
    pool = BlockPool(2, BLOCK_SIZE)
    cache = PrefixCache(pool)
    first = written_request(pool, cache, range(8))
    pool.release(first.block_ids)
    pool.allocate(1)
    assert cache.find(Request(1, tuple(range(9)), 10)) == first.block_ids[:1]
    pool.allocate(1)
    assert cache.find(Request(2, tuple(range(9)), 10)) == []
    assert len(cache) == 0


def test_a_second_copy_of_a_published_prefix_stays_private() -> None:
    pool = BlockPool(4, BLOCK_SIZE)
    cache = PrefixCache(pool)
    first = written_request(pool, cache, range(4))
    written_request(pool, cache, range(4))
    assert cache.find(Request(2, tuple(range(5)), 10)) == first.block_ids
    assert len(cache) == 1


def test_finds_nothing_after_it_was_cleared() -> None:
    pool = BlockPool(4, BLOCK_SIZE)
    cache = PrefixCache(pool)
    first = written_request(pool, cache, range(8))
    cache.clear()
    pool.release(first.block_ids)
    assert cache.find(Request(1, tuple(range(9)), 10)) == []
    assert pool.num_free == 4
