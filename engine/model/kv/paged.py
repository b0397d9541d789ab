"""Keys and values in fixed blocks of one big tensor.

With a block as long as the longest request this is the contiguous layout: one block per request, reserved at full
length. With dtype float8_e4m3fn the blocks hold scaled eight-bit numbers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.meta import AttentionMeta
from engine.errors import ConfigError

FP8 = torch.float8_e4m3fn
_FP8_MAX = torch.finfo(FP8).max


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """Shape of the cached state of the layers held here.

    Attributes:
        layers: numbers of the layers, as in the whole model.
        num_kv_heads: KV heads held here, N.
        head_dim: size of a head, D.
        dtype: dtype in which the model computes.
    """

    layers: range
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    def bytes_per_token(self, stored: torch.dtype) -> int:
        """Bytes that one token takes in all layers when stored as `stored`."""
        return 2 * len(self.layers) * self.num_kv_heads * self.head_dim * stored.itemsize


class PagedKv:
    """A pool of B blocks with S slots each, for all layers in one allocation.

    The tensor is (layers, 2, B * S + 1, N, D). The last slot is a bin: padded tokens are written there, so that a
    batch can be padded without a look at device values.
    """

    def __init__(
        self, geometry: KvGeometry, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Reserve the pool.

        Args:
            geometry: layers and heads held here.
            num_blocks: B.
            block_size: S.
            dtype: stored type: that of the model, or float8_e4m3fn.
            device: where the model runs.

        Raises:
            ConfigError: B or S is not positive, or the stored type is neither of the two.
        """
        if num_blocks < 1 or block_size < 1:
            raise ConfigError(f"a KV pool needs blocks and slots, not {num_blocks} blocks of {block_size}")
        if dtype not in (geometry.dtype, FP8):
            raise ConfigError(f"KV can be stored as {geometry.dtype} or {FP8}, not {dtype}")
        self.geometry = geometry
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.dtype = dtype
        shape = (len(geometry.layers), 2, num_blocks * block_size + 1, geometry.num_kv_heads, geometry.head_dim)
        # Zeros, not garbage: masked slots are multiplied by a zero probability, and 0 * NaN is NaN.
        self.slots = torch.zeros(shape, dtype=dtype, device=device)
        self._scales = dict.fromkeys(geometry.layers, (1.0, 1.0))

    @property
    def num_bytes(self) -> int:
        """Bytes of the pool."""
        return self.slots.nbytes

    def scales(self, layer: int) -> tuple[float, float]:
        """Factors by which stored keys and values are multiplied on the way out; 1 unless set."""
        return self._scales[layer]

    def set_scales(self, layer: int, k_scale: float, v_scale: float) -> None:
        """Fix the FP8 factors of a layer before anything is written to it.

        Raises:
            ConfigError: the pool does not store FP8, or a factor is not positive.
        """
        if self.dtype != FP8 or min(k_scale, v_scale) <= 0:
            raise ConfigError(f"KV scales ({k_scale}, {v_scale}) need an FP8 pool and must be positive")
        self._scales[layer] = (k_scale, v_scale)

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer as views (B, S, N, D) in stored type."""
        used = self.slots[layer - self.geometry.layers.start, :, : self.num_blocks * self.block_size]
        shape = (self.num_blocks, self.block_size, self.geometry.num_kv_heads, self.geometry.head_dim)
        return used[0].view(shape), used[1].view(shape)

    def write(self, layer: int, k_TND: Tensor, v_TND: Tensor, meta: AttentionMeta) -> None:
        """Store new keys and values at `meta.slot_mapping_T`; negative slots go to the bin.

        Args:
            layer: number in the whole model.
            k_TND: keys in model dtype.
            v_TND: values in model dtype.
            meta: its `slot_mapping_T` has one slot per token.

        Cost: 3 launches and T * N * D elements read and written (FP8: 9 launches); no synchronisation.
        """
        k_slots, v_slots = self.slots[layer - self.geometry.layers.start].unbind(0)
        slot_T = meta.slot_mapping_T.remainder(k_slots.shape[0])
        for slots, new_TND, scale in zip((k_slots, v_slots), (k_TND, v_TND), self._scales[layer], strict=True):
            if self.dtype == FP8:
                stored = _to_fp8(new_TND, scale)
                slots.view(torch.uint8).index_copy_(0, slot_T, stored.view(torch.uint8))
            else:
                slots.index_copy_(0, slot_T, new_TND)

    def read(self, layer: int, block_table_RM: Tensor, max_k: int) -> tuple[Tensor, Tensor]:
        """Gather the first `max_k` slots of R requests.

        Args:
            layer: number in the whole model.
            block_table_RM: int32 or int64 block numbers, at least ceil(max_k / S) columns; unused: any block.
            max_k: tokens to read.

        Returns:
            Keys and values, each (R, max_k, N, D) in model dtype; what lies past the length of a request is arbitrary.

        Cost: a copy of R * max_k tokens of the layer.
        """
        num_columns = -(-max_k // self.block_size)
        blocks = block_table_RM[:, :num_columns].reshape(-1)
        k_BSND, v_BSND = self.layer(layer)
        k_scale, v_scale = self._scales[layer]
        return self._gather(k_BSND, blocks, max_k, k_scale), self._gather(v_BSND, blocks, max_k, v_scale)

    def _gather(self, pages_BSND: Tensor, blocks: Tensor, max_k: int, scale: float) -> Tensor:
        if max_k < self.block_size:
            pages_BSND = pages_BSND.narrow(1, 0, max_k)
        stored = pages_BSND.view(torch.uint8) if self.dtype == FP8 else pages_BSND
        picked = stored.index_select(0, blocks).view(self.dtype)
        num_columns = -(-max_k // self.block_size)
        rows = picked.view(-1, num_columns * pages_BSND.shape[1], *picked.shape[2:])[:, :max_k]
        return rows.to(self.geometry.dtype).mul_(scale) if self.dtype == FP8 else rows

    def blocks(self) -> Tensor:
        """All blocks as a view (layers, 2, B, S, N, D); FP8 as uint8, which every copy kernel accepts."""
        used = self.slots[:, :, : self.num_blocks * self.block_size]
        stored = used.view(torch.uint8) if self.dtype == FP8 else used
        return stored.view(*stored.shape[:2], self.num_blocks, self.block_size, *stored.shape[3:])


def _to_fp8(values: Tensor, scale: float) -> Tensor:
    # float8_e4m3fn has no infinity: a cast past the largest number gives NaN, so clamp first.
    return (values.float() * (1 / scale)).clamp_(-_FP8_MAX, _FP8_MAX).to(FP8)
