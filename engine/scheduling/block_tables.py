"""The block tables of requests: which blocks hold the KV of whom, on the device and on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.scheduling.block_pool import BlockPool
from engine.scheduling.cold_blocks import ColdBlocks
from engine.scheduling.prefix_cache import PrefixCache
from engine.scheduling.request import Request
from engine.scheduling.scheduler_config import SchedulerConfig
from engine.scheduling.step import Step


class BlockTables:
    """Moves blocks between two pools and the requests; the only place that changes `Request.block_ids`.

    `num_departures` counts the requests that have left the device.
    """

    def __init__(
        self, device: BlockPool, host: BlockPool, prefix_cache: PrefixCache | None, cold_blocks: ColdBlocks | None
    ) -> None:
        self.device = device
        self.host = host
        self.prefix_cache = prefix_cache
        self.cold_blocks = cold_blocks
        self.num_departures = 0

    @classmethod
    def of(cls, config: SchedulerConfig) -> BlockTables:
        """Empty tables over pools of the configured sizes."""
        device = BlockPool(config.num_blocks, config.block_size)
        host = BlockPool(config.num_host_blocks, config.block_size)
        if not config.prefix_caching:
            return cls(device, host, None, None)
        published = PrefixCache(device, config.prefix_namespace)
        if config.max_cold_copies == 0:
            return cls(device, host, published, None)
        on_host = PrefixCache(host, config.prefix_namespace)
        return cls(device, host, published, ColdBlocks(published, on_host, config.max_cold_copies))

    def find_prefix(self, request: Request) -> list[int]:
        """Published blocks with the start of a request that has no KV yet; empty without a prefix cache."""
        if self.prefix_cache is None or request.host_block_ids:
            return []
        return self.prefix_cache.find(request)

    def adopt_prefix(self, request: Request) -> tuple[tuple[int, int], ...]:
        """Give a request without KV its share of the published blocks; their tokens count as computed.

        Returns:
            The (host, device) copies of those that are found on the host only. The host blocks are shared: whoever
            makes the copies has to release them.
        """
        request.block_ids = self.find_prefix(request)
        self.device.share(request.block_ids)
        request.num_published = len(request.block_ids)
        copies = self._adopt_from_host(request)
        request.num_computed = len(request.block_ids) * self.device.block_size
        request.num_cached += request.num_computed
        return copies

    def _adopt_from_host(self, request: Request) -> tuple[tuple[int, int], ...]:
        if self.cold_blocks is None:
            return ()
        host_block_ids = self.cold_blocks.find(request, len(request.block_ids))[: self.device.num_free]
        self.host.share(host_block_ids)
        block_ids = self.device.allocate(len(host_block_ids))
        request.block_ids += block_ids
        return tuple(zip(host_block_ids, block_ids, strict=True))

    def forget_prefixes(self) -> None:
        """Empty the prefix cache on both sides."""
        if self.prefix_cache is not None:
            self.prefix_cache.clear()
        if self.cold_blocks is not None:
            self.cold_blocks.clear()

    def grow(self, request: Request, num_tokens: int) -> bool:
        """Extend a table to hold `num_tokens` tokens; False, and no change, where blocks are lacking."""
        missing = self.device.blocks_for(num_tokens) - len(request.block_ids)
        if missing <= 0:
            return True
        if missing > self.device.num_free:
            return False
        request.block_ids += self.device.allocate(missing)
        return True

    def trim(self, request: Request) -> None:
        """Give back the blocks beyond the computed tokens, which rejected drafts and undone steps leave behind."""
        num_blocks = self.device.blocks_for(request.num_computed)
        self.device.release(request.block_ids[num_blocks:])
        del request.block_ids[num_blocks:]

    def publish(self, request: Request, num_written: int) -> None:
        """Offer the blocks of the first `num_written` tokens, whose KV is written, to other requests."""
        if self.prefix_cache is not None and num_written // self.device.block_size > request.num_published:
            self.prefix_cache.publish(request, num_written)

    def forget(self, request: Request) -> None:
        """Give back every block of a request, on both sides: its KV has to be computed anew, if at all."""
        self.release_device(request)
        self.release_host(request)
        request.num_computed = 0
        request.num_pending = 0

    def release_device(self, request: Request) -> None:
        """Give back the device blocks of a request, which makes room for others."""
        self.num_departures += 1
        self.device.release(request.block_ids)
        request.block_ids = []
        request.num_published = 0

    def release_host(self, request: Request) -> None:
        """Give back the host blocks of a request."""
        self.host.release(request.host_block_ids)
        request.host_block_ids = []

    def copy_to_host(self, request: Request) -> tuple[tuple[int, int], ...]:
        """Give a request one host block for each device block; returns the (device, host) copies to make.

        The device blocks stay with the request until the copies are known to be complete.
        """
        request.host_block_ids = self.host.allocate(len(request.block_ids))
        return tuple(zip(request.block_ids, request.host_block_ids, strict=True))

    def copy_to_device(self, request: Request) -> tuple[tuple[int, int], ...]:
        """Give a swapped request its device blocks again; returns the (host, device) copies to make."""
        request.block_ids = self.device.allocate(len(request.host_block_ids))
        return tuple(zip(request.host_block_ids, request.block_ids, strict=True))

    def check(self, requests: Iterable[Request], steps: Iterable[Step]) -> None:
        """Compare the owners of every block with the tables of all requests, and the copies of all steps in flight.

        Raises:
            RuntimeError: they differ.
        """
        tables = [(request.block_ids, request.host_block_ids) for request in requests]
        tables += [(step.cold_device_blocks, step.cold_host_blocks) for step in steps]
        for pool, name, side in ((self.device, "device", 0), (self.host, "host", 1)):
            listed = Counter(block_id for table in tables for block_id in table[side])
            for block_id in range(pool.num_blocks):
                owners = pool.num_owners(block_id)
                if owners != listed[block_id]:
                    raise RuntimeError(f"{name} block {block_id}: {owners} owners, in {listed[block_id]} tables")
            if pool.num_used != len(listed):
                raise RuntimeError(f"{pool.num_used} {name} blocks are taken, {len(listed)} are in use")
