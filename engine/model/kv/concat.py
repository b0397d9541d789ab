"""Keys and values of each request in a tensor of its own, grown by concatenation. Ill on purpose.

Every step copies the whole cache once and changes the shape of every tensor, so that memory is fragmented and kernels
are chosen anew for each length. The cure is the paged layout.
"""

import torch
from torch import Tensor

from engine.attention.meta import AttentionMeta
from engine.errors import ConfigError
from engine.model.kv.paged import KvGeometry


class ConcatKv:
    """One growing tensor per request, layer and side; a request is known by the first block of its table.

    `bytes_copied` counts the old keys and values that were copied only to make room for new ones.
    """

    def __init__(self, geometry: KvGeometry, max_requests: int, max_length: int) -> None:
        """Reserve nothing.

        Args:
            geometry: layers and heads held here.
            max_requests: rows, numbered like blocks; row b belongs to the request whose table starts with b.
            max_length: tokens that a request may have; the block size that the scheduler sees.

        Raises:
            ConfigError: there is no room for a request or a token.
        """
        if max_requests < 1 or max_length < 1:
            raise ConfigError(f"a KV cache needs requests and tokens, not {max_requests} requests of {max_length}")
        self.geometry = geometry
        self.num_blocks = max_requests
        self.block_size = max_length
        self.dtype = geometry.dtype
        self.bytes_copied = 0
        self._kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    @property
    def num_bytes(self) -> int:
        """Bytes of all requests now; the former tensors are garbage but may still take memory."""
        return sum(k.nbytes + v.nbytes for k, v in self._kept.values())

    def scales(self, layer: int) -> tuple[float, float]:
        """No scaling: stored in model dtype."""
        del layer
        return 1.0, 1.0

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """There is no tensor of a whole layer.

        Raises:
            ConfigError: always; only backends that read through `read` work with this layout.
        """
        raise ConfigError(f"layer {layer}: a KV cache grown by concatenation has no blocks; choose eager or torch_ref")

    def write(self, layer: int, k_TND: Tensor, v_TND: Tensor, meta: AttentionMeta) -> None:
        """Append the new tokens of each request to its tensors; a request that starts at token 0 begins anew.

        Args:
            layer: number in the whole model.
            k_TND: keys in model dtype.
            v_TND: values in model dtype.
            meta: lengths and table are read on the host.

        Cost: a copy of everything that is kept for these requests in this layer; three synchronisations.
        """
        ends = meta.cu_q_B1.tolist()
        lengths = meta.seq_lens_B.tolist()
        for row, request in enumerate(meta.block_table_BM[:, 0].tolist()):
            new = slice(ends[row], ends[row + 1])
            start = lengths[row] - (new.stop - new.start)
            if new.stop > new.start and lengths[row] > 0:
                self._append((layer, request), start, k_TND[new], v_TND[new])

    def _append(self, key: tuple[int, int], start: int, k_TND: Tensor, v_TND: Tensor) -> None:
        if start == 0:
            self._kept[key] = (k_TND.clone(), v_TND.clone())
            return
        k_old, v_old = self._kept[key]
        self._kept[key] = (torch.cat((k_old[:start], k_TND)), torch.cat((v_old[:start], v_TND)))
        self.bytes_copied += 2 * start * k_old[0].nbytes

    def read(self, layer: int, block_table_RM: Tensor, max_k: int) -> tuple[Tensor, Tensor]:
        """Pad the tensors of R requests to `max_k` tokens and stack them: another copy."""
        kept = [self._kept.get((layer, request)) for request in block_table_RM[:, 0].tolist()]
        shape = (len(kept), max_k, self.geometry.num_kv_heads, self.geometry.head_dim)
        k_RKND = torch.zeros(shape, dtype=self.geometry.dtype, device=block_table_RM.device)
        v_RKND = torch.zeros_like(k_RKND)
        for row, pair in enumerate(kept):
            if pair is not None:
                count = min(max_k, pair[0].shape[0])
                k_RKND[row, :count] = pair[0][:count]
                v_RKND[row, :count] = pair[1][:count]
        return k_RKND, v_RKND

    def release(self, requests: list[int]) -> None:
        """Forget finished requests, in all layers."""
        gone = set(requests)
        self._kept = {key: pair for key, pair in self._kept.items() if key[1] not in gone}
