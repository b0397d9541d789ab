"""KV blocks in host memory: where requests that lost their place on the device wait."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from engine.execution.counters import Counters
    from engine.model.kv.paged import PagedKv


class HostBlocks:
    """A pool of blocks on the host, and the copies between it and the device.

    On a GPU the copies run on a stream of their own. From pinned memory they are asynchronous; from pageable memory the
    driver holds up the host for each block.
    """

    def __init__(self, kv: PagedKv, num_blocks: int, is_pinned: bool, counters: Counters) -> None:
        """Reserve the pool.

        Args:
            kv: the cache on the device.
            num_blocks: blocks on the host.
            is_pinned: whether the host memory is page-locked; without effect on the CPU.
            counters: counts the copies.
        """
        self._kv = kv
        self._counters = counters
        self._is_cuda = kv.slots.is_cuda
        self._is_pinned = is_pinned and self._is_cuda
        layers, both, _, *block = kv.blocks().shape
        self._host = torch.empty(
            (num_blocks, layers, both, *block), dtype=kv.blocks().dtype, pin_memory=self._is_pinned
        )
        self._stream = torch.cuda.Stream(kv.slots.device) if self._is_cuda else None  # type: ignore[no-untyped-call]

    @property
    def num_bytes(self) -> int:
        """Bytes of host memory."""
        return self._host.nbytes

    def copy_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks (device, host) to the host; complete once `finish` returns."""
        with self._beside_the_step():
            picked = self._kv.blocks().index_select(2, self._numbers(pair[0] for pair in pairs)).movedim(2, 0)
            picked = picked.contiguous()
            for index, (_, host) in enumerate(pairs):
                self._host[host].copy_(picked[index], non_blocking=self._is_pinned)
        self._counters.swapped_out_blocks += len(pairs)
        self._count_copies(len(pairs))

    def copy_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks (host, device) to the device, before anything that is launched later reads them."""
        blocks = self._kv.blocks()
        with self._beside_the_step():
            arrived = torch.empty((len(pairs), *self._host.shape[1:]), dtype=blocks.dtype, device=blocks.device)
            for index, (host, _) in enumerate(pairs):
                arrived[index].copy_(self._host[host], non_blocking=self._is_pinned)
            blocks.index_copy_(2, self._numbers(pair[1] for pair in pairs), arrived.movedim(0, 2))
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        self._counters.swapped_in_blocks += len(pairs)
        self._count_copies(len(pairs))

    def finish(self) -> None:
        """Wait for the copies that were started."""
        if self._stream is not None:
            self._stream.synchronize()

    def _numbers(self, numbers: object) -> Tensor:
        return torch.tensor(list(numbers), device=self._kv.slots.device)  # type: ignore[call-overload]

    def _beside_the_step(self) -> AbstractContextManager[object]:
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._stream)

    def _count_copies(self, count: int) -> None:
        if self._is_pinned:
            self._counters.pinned_copies += count
        else:
            self._counters.pageable_copies += count
