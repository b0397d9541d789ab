"""Angles of the rotary position embedding, for every scaling kind of the supported architectures.

Frequencies of the scaled kinds come from transformers' own table of formulas, so that they cannot drift apart.

One kind, `dynamic`, stretches the base with the length of the sequence. Cached keys keep the angle they were written
with, so here the angle depends on the position alone: position p is rotated as in a sequence of p + 1 tokens. That
equals transformers for prompts within the trained length and for every token generated after them. Longer prompts
differ: transformers rotates the whole prompt by the base of its full length, which neither chunks nor prefix reuse can
reproduce.
"""

import copy
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.errors import UnsupportedArchitectureError

SCALING_KINDS = ("default", "dynamic", "linear", "llama3", "yarn")


class RotaryTable(torch.nn.Module):
    """Cosines and sines of positions 0 to P - 1."""

    def __init__(self, cos_PD: Tensor, sin_PD: Tensor) -> None:
        """Keep the tables as buffers.

        Args:
            cos_PD: the D/2 cosines of a position, twice.
            sin_PD: the D/2 sines, negated in the first half, as they are in the second.
        """
        super().__init__()
        self.cos_PD: Tensor
        self.sin_PD: Tensor
        self.register_buffer("cos_PD", cos_PD, persistent=False)
        self.register_buffer("sin_PD", sin_PD, persistent=False)

    def forward(self, positions_T: Tensor) -> tuple[Tensor, Tensor]:
        """Look up the rows of T positions (int64, below P)."""
        return self.cos_PD.index_select(0, positions_T), self.sin_PD.index_select(0, positions_T)


def build_rotary_table(config: Any, num_positions: int, dtype: torch.dtype, device: torch.device) -> RotaryTable:
    """Compute the table of a model in fp32, then cast.

    Args:
        config: transformers config; `rope_parameters` names the scaling kind.
        num_positions: P.
        dtype: dtype of queries and keys.
        device: where they are.

    Raises:
        UnsupportedArchitectureError: the kind is not one of `SCALING_KINDS`, or only a part of a head is rotated.
    """
    kind = _scaling_kind(config)
    positions = torch.arange(num_positions, dtype=torch.float32)
    frequencies, factor = _frequencies(config, kind)
    angles = positions[:, None] * frequencies
    if kind == "dynamic":
        for position in range(config.max_position_embeddings, num_positions):
            stretched, _ = ROPE_INIT_FUNCTIONS[kind](config, seq_len=torch.tensor(position + 1))
            angles[position] = position * stretched
    cos, sin = angles.cos() * factor, angles.sin() * factor
    cos_PD, sin_PD = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
    return RotaryTable(cos_PD.to(device, dtype), sin_PD.to(device, dtype))


def _scaling_kind(config: Any) -> str:
    kind: str = config.rope_parameters.get("rope_type", "default")
    if kind not in SCALING_KINDS:
        raise UnsupportedArchitectureError(f"RoPE scaling {kind!r}; supported are {', '.join(SCALING_KINDS)}")
    part = config.rope_parameters.get("partial_rotary_factor", 1.0)
    if part != 1.0:
        raise UnsupportedArchitectureError(f"rotation of a part of each head (partial_rotary_factor {part})")
    return kind


def _frequencies(config: Any, kind: str) -> tuple[Tensor, float]:
    """Radians per token of the D/2 planes, and the factor on cosines and sines."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if kind == "default":
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        return 1.0 / (config.rope_parameters["rope_theta"] ** exponents), 1.0
    whole = copy.copy(config)
    # transformers 5.24 reads head_dim of a scaled Mixtral config without looking whether it is None.
    whole.head_dim = head_dim
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](whole)
    return frequencies.float(), float(factor)
