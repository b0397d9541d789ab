"""Random numbers that depend on the request alone: not on its batch, its slot, a preemption or the device.

A generator with a state would tie a request to the order in which its batch is processed. A counter-based one does not:
number = mix(seed, position, purpose, index). The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood
2014), applied to a row key and then to the sum of that key and the index.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class Purpose(IntEnum):
    """Independent streams of numbers for the same position."""

    SAMPLE = 1
    ACCEPT = 2
    DRAFT = 3


def _signed(value: int) -> int:
    """The int64 with the same bits: torch has no arithmetic on uint64."""
    return value - (1 << 64) if value >= 1 << 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)
_BITS = 24


def _shift(x: Tensor, bits: int) -> Tensor:
    # The shift of a signed integer copies the sign: mask what came in.
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def uniform(seeds_R: Tensor, positions_R: Tensor, purpose: Purpose, num_columns: int) -> Tensor:
    """Uniform numbers in (0, 1), never 0 and never 1, for each row and column.

    Args:
        seeds_R: int64, seed of the request of each row.
        positions_R: int64, position of the token that is drawn.
        purpose: stream of numbers.
        num_columns: V, numbers in a row.

    Returns:
        uniform_RV, float32, with 24 random bits each.

    Cost: about 12 element-wise passes over R*V int64, no synchronisation.
    """
    key_R = _mix(_mix(seeds_R + _GOLDEN) + (positions_R * 4 + int(purpose)) * _GOLDEN)
    index_V = torch.arange(1, num_columns + 1, device=seeds_R.device) * _GOLDEN
    bits_RV = _shift(_mix(key_R[:, None] + index_V), 64 - _BITS)
    return (bits_RV.float() + 0.5) * 2.0**-_BITS


def exponential(seeds_R: Tensor, positions_R: Tensor, purpose: Purpose, num_columns: int) -> Tensor:
    """Exponentially distributed numbers with mean 1, float32 (R, V); the arguments are those of `uniform`.

    The smallest of the numbers E_v / p_v belongs to v with probability p_v: a draw without a sum, a search or a
    synchronisation ("exponential race").
    """
    return -torch.log(uniform(seeds_R, positions_R, purpose, num_columns))
