"""Attention by the FlashAttention-2 kernel inside torch, over packed sequences. CUDA, fp16 and bf16 only.

The operator is called below `torch.nn.attention.varlen`, whose signature changed between torch 2.11 and 2.13: the two
arguments needed here (`cum_seq_k`, where a request begins, and `seqused_k`, how long it is) are in the operator of
both. Together they read a contiguous cache in place. A paged cache is gathered first: the operator's own block table
came with torch 2.13, wants pages of 256 slots, and drops rows when the sequence is split (pytorch#194167).
"""

import torch
from torch import Tensor

from engine.attention.backend import AttentionSpec, KvCache
from engine.attention.meta import AttentionMeta
from engine.errors import ConfigError

_DTYPES = (torch.float16, torch.bfloat16)


class VarlenAttention:
    """Backend `varlen`."""

    def __init__(self, spec: AttentionSpec) -> None:
        """Check that the kernel can run here.

        Raises:
            ConfigError: there is no CUDA device, or torch is too old to take `seqused_k`.
        """
        if not torch.cuda.is_available():
            raise ConfigError("attention backend varlen needs CUDA: torch has no FlashAttention kernel for the CPU")
        arguments = torch.ops.aten._flash_attention_forward.default._schema.arguments
        if "seqused_k" not in {argument.name for argument in arguments}:
            raise ConfigError(f"attention backend varlen needs torch 2.11 or later, not {torch.__version__}")
        self._spec = spec

    def bind(self, kv: KvCache, meta: AttentionMeta) -> "VarlenPass":
        """Work out where each request begins among the keys; no synchronisation."""
        return VarlenPass(self._spec, kv, meta)


class VarlenPass:
    """One forward pass of `varlen`."""

    def __init__(self, spec: AttentionSpec, kv: KvCache, meta: AttentionMeta) -> None:
        """Choose between reading in place and gathering: in place if one block holds any request of the batch."""
        self._spec = spec
        self._kv = kv
        self._meta = meta
        self._is_in_place = kv.block_size >= meta.max_k and kv.dtype in _DTYPES
        table_BM = meta.block_table_BM
        num_columns = -(-meta.max_k // kv.block_size)
        self._num_read = num_columns * kv.block_size
        if self._is_in_place:
            begins_B = table_BM[:, 0] * kv.block_size
            # The operator wants B + 1 offsets; with `seqused_k` it never looks at the last one.
            self._begins_B1 = torch.cat((begins_B, begins_B[-1:])).int()
        else:
            rows = torch.arange(table_BM.shape[0] + 1, device=table_BM.device, dtype=torch.int32)
            self._begins_B1 = rows * self._num_read

    def __call__(self, q_THD: Tensor, k_TND: Tensor, v_TND: Tensor, layer: int) -> Tensor:
        """See `engine.attention.backend.Attend`.

        Raises:
            ConfigError: q is neither fp16 nor bf16.

        Cost: one launch on a contiguous cache; on a paged one also a copy of the keys and values of the batch.
        """
        if q_THD.dtype not in _DTYPES:
            raise ConfigError(f"attention backend varlen computes in fp16 or bf16, not {q_THD.dtype}")
        meta = self._meta
        self._kv.write(layer, k_TND, v_TND, meta)
        k_KND, v_KND = self._keys(layer)
        window = self._spec.windows[layer]
        out_THD: Tensor = torch.ops.aten._flash_attention_forward(
            q_THD.contiguous(),
            k_KND,
            v_KND,
            meta.cu_q_B1,
            self._begins_B1,
            meta.max_q,
            meta.max_k,
            0.0,
            True,
            False,
            scale=self._spec.scale,
            window_size_left=None if window is None else window - 1,
            window_size_right=None if window is None else 0,
            seqused_k=meta.seq_lens_B,
        )[0]
        return out_THD

    def _keys(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values as one long row of tokens, into which `_begins_B1` points."""
        if self._is_in_place:
            k, v = self._kv.layer(layer)
        else:
            k, v = self._kv.read(layer, self._meta.block_table_BM, self._num_read)
        return k.flatten(0, 1), v.flatten(0, 1)
