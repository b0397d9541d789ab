"""Weights of some layers live on the host and come to the device shortly before their layer runs.

Two device buffers take turns. While one layer computes from its buffer, a side stream fills the other with the next
layer's weights from pinned memory. The ill variant keeps weights in pageable memory and copies them in the layer's own
stream, where each copy holds up the host.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ConfigError

_ALIGNMENT = 256


def spread_evenly(layers: range, share: float) -> tuple[int, ...]:
    """Choose a share of the layers, as far apart as possible: compute between two copies hides them."""
    count = len(layers)
    return tuple(layers[i] for i in range(count) if int((i + 1) * share) > int(i * share))


class WeightStream:
    """Keeps the parameters of some modules on the host and brings them in turn; works through hooks of the modules."""

    def __init__(self, device: torch.device, is_prefetching: bool) -> None:
        """Prepare for layers to be added.

        Args:
            device: where the layers run.
            is_prefetching: pinned memory and a side stream; else pageable memory and blocking copies.
        """
        self.num_copies = 0
        self.is_pinned = is_prefetching and device.type == "cuda"
        self._device = device
        self._layers: list[nn.Module] = []
        self._host: list[Tensor] = []
        num_buffers = 2 if is_prefetching else 1
        self._buffers = [torch.empty(0, dtype=torch.uint8, device=device) for _ in range(num_buffers)]
        self._holds: list[int | None] = [None] * num_buffers
        self._left: list[Any] = [None] * num_buffers
        self._arrived: list[Any] = [None] * num_buffers
        self._stream: Any = torch.cuda.Stream(device) if self.is_pinned else None  # type: ignore[no-untyped-call]

    def add(self, layer: nn.Module) -> None:
        """Move the parameters of a layer into one flat host buffer; what they were in is let go at once.

        Layers are added in the order in which they run; each runs once per pass.

        Raises:
            ConfigError: the layer keeps weights in a form that is not a plain tensor.
        """
        flat = _flatten(layer, self.is_pinned)
        _point_into(layer, flat)
        self._layers.append(layer)
        self._host.append(flat)

    def start(self) -> None:
        """Reserve the device buffers, long enough for any of the layers, and hook the layers."""
        longest = max(flat.numel() for flat in self._host)
        self._buffers = [torch.empty(longest, dtype=torch.uint8, device=self._device) for _ in self._buffers]
        for index, layer in enumerate(self._layers):
            _point_into(layer, self._buffers[index % len(self._buffers)])
            layer.register_forward_pre_hook(partial(self._before, index))
            layer.register_forward_hook(partial(self._after, index))

    @property
    def num_bytes(self) -> int:
        """Bytes on the device; the host holds all layers."""
        return sum(buffer.nbytes for buffer in self._buffers)

    @property
    def num_host_bytes(self) -> int:
        """Bytes on the host."""
        return sum(flat.nbytes for flat in self._host)

    def _before(self, index: int, *_: object) -> None:
        """Have the weights of a layer in their buffer, and the next layer's on their way."""
        place = index % len(self._buffers)
        if self._stream is None:
            self._copy(index, is_asynchronous=False)
            return
        current = torch.cuda.current_stream(self._device)
        if self._holds[place] != index:
            # The first pass, or one after a pass that broke off: whatever ran last may still read the buffer.
            self._stream.wait_stream(current)
            self._fetch(index)
        current.wait_event(self._arrived[place])
        self._fetch_next(index, is_computed=False)

    def _after(self, index: int, *_: object) -> None:
        """Note that the buffer of a layer may be filled anew."""
        if self._stream is not None:
            self._left[index % len(self._buffers)] = torch.cuda.current_stream(self._device).record_event()
            self._fetch_next(index, is_computed=True)

    def _fetch_next(self, index: int, is_computed: bool) -> None:
        """Fetch the layer after this one: at once into another buffer, else when this layer has been computed."""
        following = (index + 1) % len(self._host)
        shares_buffer = following % len(self._buffers) == index % len(self._buffers)
        if shares_buffer == is_computed and following != index:
            self._fetch(following)

    def _fetch(self, index: int) -> None:
        """Start filling the buffer of a layer once the layer that used it has been computed."""
        place = index % len(self._buffers)
        with torch.cuda.stream(self._stream):
            if self._left[place] is not None:
                self._stream.wait_event(self._left[place])
            self._copy(index, is_asynchronous=True)
            self._arrived[place] = self._stream.record_event()
        self._holds[place] = index

    def _copy(self, index: int, is_asynchronous: bool) -> None:
        flat = self._host[index]
        self._buffers[index % len(self._buffers)][: flat.numel()].copy_(flat, non_blocking=is_asynchronous)
        self.num_copies += 1


def _places(layer: nn.Module) -> list[tuple[nn.Module, str, Tensor, int]]:
    """Owner, name, tensor and offset in bytes of every parameter, in a fixed order."""
    places, offset = [], 0
    for owner in layer.modules():
        for name, parameter in owner.named_parameters(recurse=False):
            if type(parameter.data) is not Tensor:
                kind = type(parameter.data).__name__
                raise ConfigError(f"weights kept as {kind} cannot be offloaded; choose quantization none or fp8")
            places.append((owner, name, parameter.data, offset))
            offset += -(-parameter.nbytes // _ALIGNMENT) * _ALIGNMENT
    return places


def _flatten(layer: nn.Module, is_pinned: bool) -> Tensor:
    places = _places(layer)
    _, _, last, offset = places[-1]
    flat = torch.empty(offset + last.nbytes, dtype=torch.uint8, pin_memory=is_pinned)
    for _, _, tensor, begin in places:
        flat[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    return flat


def _point_into(layer: nn.Module, buffer: Tensor) -> None:
    """Make the parameters views of a buffer; what they hold changes with every copy into it."""
    for owner, name, tensor, begin in _places(layer):
        view = buffer[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        setattr(owner, name, nn.Parameter(view, requires_grad=False))
