"""Host memory through which the numbers of a step reach the device, and its tokens come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from engine.execution.counters import Counters

_ALIGNMENT = 16


class Staging(Protocol):
    """Brings arrays of integers or floats to the device."""

    def to_device(self, arrays: Sequence[NDArray[np.generic]]) -> list[Tensor]:
        """Return one tensor on the device for each array, same type and shape."""
        ...


class HostStaging:
    """For the CPU: the arrays are the tensors."""

    def to_device(self, arrays: Sequence[NDArray[np.generic]]) -> list[Tensor]:
        """Wrap the arrays without a copy."""
        return [torch.from_numpy(array) for array in arrays]


class PageableStaging:
    """One copy an array from pageable memory: each one holds up the host until the driver has read the array."""

    def __init__(self, device: torch.device, counters: Counters) -> None:
        self._device = device
        self._counters = counters

    def to_device(self, arrays: Sequence[NDArray[np.generic]]) -> list[Tensor]:
        """Copy array by array and wait for each."""
        self._counters.pageable_copies += len(arrays)
        return [torch.from_numpy(array).to(self._device) for array in arrays]


class PinnedStaging:
    """All arrays of a step in one asynchronous copy from pinned memory.

    A buffer is written again only after the device has read it: each one has an event, and there are more buffers than
    steps in flight, so that in the steady state nobody waits.
    """

    def __init__(self, device: torch.device, counters: Counters, num_buffers: int = 4) -> None:
        self._device = device
        self._counters = counters
        self._free: deque[tuple[Tensor, torch.cuda.Event]] = deque()
        for _ in range(num_buffers):
            self._free.append((torch.empty(1 << 16, dtype=torch.uint8, pin_memory=True), torch.cuda.Event()))  # type: ignore[no-untyped-call]

    def to_device(self, arrays: Sequence[NDArray[np.generic]]) -> list[Tensor]:
        """Pack the arrays into one pinned buffer and copy it once."""
        size = layout_size(arrays)
        host, is_read = self._writable(size)
        for view, array in zip(array_views(arrays, host.numpy()), arrays, strict=True):
            view[...] = array
        target = torch.empty(size, dtype=torch.uint8, device=self._device)
        self._send(host, is_read, target)
        return layout_views(arrays, target)

    def copy_packed(self, packed: NDArray[np.uint8], target: Tensor) -> None:
        """Copy bytes that are packed already into a buffer on the device; CUDA graphs keep theirs.

        Args:
            packed: as `array_views` lays arrays out.
            target: uint8, as long.
        """
        host, is_read = self._writable(packed.nbytes)
        host.numpy()[: packed.nbytes] = packed
        self._send(host, is_read, target)

    def _send(self, host: Tensor, is_read: torch.cuda.Event, target: Tensor) -> None:
        target.copy_(host[: target.numel()], non_blocking=True)
        is_read.record()
        self._free.append((host, is_read))
        self._counters.pinned_copies += 1

    def _writable(self, size: int) -> tuple[Tensor, torch.cuda.Event]:
        host, is_read = self._free.popleft()
        if not is_read.query():  # type: ignore[no-untyped-call]
            self._counters.syncs += 1
            is_read.synchronize()
        if host.numel() < size:
            host = torch.empty(2 * size, dtype=torch.uint8, pin_memory=True)
        return host, is_read


def layout_views(arrays: Sequence[NDArray[np.generic]], buffer: Tensor) -> list[Tensor]:
    """Views of a uint8 tensor where arrays of these types and shapes are packed."""
    starts, _ = _layout(arrays)
    return [
        buffer[start : start + array.nbytes].view(_DTYPES[array.dtype]).view(array.shape)
        for start, array in zip(starts, arrays, strict=True)
    ]


def array_views(arrays: Sequence[NDArray[np.generic]], buffer: NDArray[np.uint8]) -> list[NDArray[Any]]:
    """Views of a uint8 array where arrays of these types and shapes are packed."""
    starts, _ = _layout(arrays)
    return [
        buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        for start, array in zip(starts, arrays, strict=True)
    ]


def layout_size(arrays: Sequence[NDArray[np.generic]]) -> int:
    """Bytes that arrays of these types and shapes take in one packed buffer."""
    return _layout(arrays)[1]


def _layout(arrays: Sequence[NDArray[np.generic]]) -> tuple[list[int], int]:
    starts, end = [], 0
    for array in arrays:
        starts.append(end)
        end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    return starts, end


_DTYPES = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.float32): torch.float32,
}
