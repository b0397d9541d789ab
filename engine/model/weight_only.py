"""INT8 and INT4 weights with activations left alone, by torchao.

INT8: one factor per output channel, any device and dtype. INT4: one factor and zero per group of 32 inputs (5 bits per
weight in all), bf16 only; on CUDA in torchao's tiled layout, on the CPU in its opaque layout, which torchao 0.18 still
calls a prototype.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import ConfigError
from engine.model.weight_format import WeightFormat

_GROUP = 32


def quantise_weight_only(weight_OI: Tensor, bias_O: Tensor | None, weight_format: WeightFormat) -> nn.Module:
    """Build a quantised product from a matrix on its final device.

    Args:
        weight_OI: in model dtype.
        bias_O: in model dtype.
        weight_format: INT8 or INT4.

    Raises:
        ConfigError: torchao is not installed, or its INT4 does not work for this device, dtype or width.
    """
    with _quiet_import():
        try:
            from torchao.quantization import quantize_  # noqa: PLC0415 (optional, slow to import)

            recipe = _int8() if weight_format == WeightFormat.INT8 else _int4(weight_OI)
        except ImportError as error:
            raise ConfigError(f"quantization {weight_format} needs torchao (extra 'quantization')") from error
    # Built on the meta device: the matrix is put in place, never initialised.
    product = nn.Linear(weight_OI.shape[1], weight_OI.shape[0], bias=bias_O is not None, device="meta")
    product.weight = nn.Parameter(weight_OI, requires_grad=False)
    if bias_O is not None:
        product.bias = nn.Parameter(bias_O, requires_grad=False)
    holder = nn.Sequential(product)
    quantize_(holder, recipe)
    return holder[0]


@contextmanager
def _quiet_import() -> Iterator[None]:
    """Hide what torchao says when imported: it probes compiled extensions for other devices and warns about each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _int8() -> Any:
    from torchao.quantization import Int8WeightOnlyConfig  # noqa: PLC0415 (optional, slow to import)

    return Int8WeightOnlyConfig(set_inductor_config=False)


def _int4(weight_OI: Tensor) -> Any:
    if weight_OI.shape[1] % _GROUP:
        raise ConfigError(f"INT4 weights need a width that is a multiple of {_GROUP}, not {weight_OI.shape[1]}")
    if weight_OI.dtype != torch.bfloat16:
        raise ConfigError(f"INT4 weights need dtype bfloat16, not {weight_OI.dtype}")
    if weight_OI.is_cuda:
        return _int4_on_cuda()
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig  # noqa: PLC0415 (optional)
    from torchao.quantization.quantize_.workflows import Int4ChooseQParamsAlgorithm  # noqa: PLC0415 (optional)

    return PrototypeInt4WeightOnlyConfig(
        group_size=_GROUP, int4_choose_qparams_algorithm=Int4ChooseQParamsAlgorithm.HQQ, set_inductor_config=False
    )


def _int4_on_cuda() -> Any:
    from torchao.quantization import Int4WeightOnlyConfig  # noqa: PLC0415 (optional, slow to import)
    from torchao.quantization.quantize_.workflows import (  # noqa: PLC0415 (optional)
        Int4ChooseQParamsAlgorithm,
        Int4PackingFormat,
    )

    return Int4WeightOnlyConfig(
        group_size=_GROUP,
        int4_packing_format=Int4PackingFormat.TILE_PACKED_TO_4D,
        int4_choose_qparams_algorithm=Int4ChooseQParamsAlgorithm.HQQ,
        set_inductor_config=False,
    )
