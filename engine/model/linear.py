"""Products with a weight matrix, one class per way of keeping the matrix."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class DenseLinear(nn.Module):
    """The matrix as the checkpoint has it."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        """Keep the tensors, without a copy."""
        super().__init__()
        self.weight = nn.Parameter(weight_OI, requires_grad=False)
        self.bias = None if bias_O is None else nn.Parameter(bias_O, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply by the transposed matrix and add the bias."""
        return linear(x, self.weight, self.bias)


class PackedLinear(nn.Module):
    """The matrix reordered once into oneDNN's blocked layout, which spares the CPU the reordering in every call.

    The two operators belong to torch's compiler back end and are not public; `can_pack` looks whether they are there.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        """Pack a copy of the matrix; the original is not kept."""
        super().__init__()
        self.bias = None if bias_O is None else nn.Parameter(bias_O, requires_grad=False)
        # An opaque tensor cannot be a Parameter: it has no storage to share.
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous())

    @property
    def num_bytes(self) -> int:
        """Bytes of the packed matrix."""
        return self._packed.numel() * self._packed.dtype.itemsize

    def forward(self, x: Tensor) -> Tensor:
        """Multiply by the transposed matrix and add the bias."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return out


def can_pack(weight_OI: Tensor) -> bool:
    """Whether `PackedLinear` works for this matrix: on the CPU, in fp32 or bf16, with oneDNN in this build of torch."""
    return (
        weight_OI.device.type == "cpu"
        and weight_OI.dtype in (torch.float32, torch.bfloat16)
        and torch._C._has_mkldnn
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def keep_matrix(weight_OI: Tensor, bias_O: Tensor | None) -> nn.Module:
    """Keep a matrix unquantised, in the layout that multiplies fastest on its device."""
    return PackedLinear(weight_OI, bias_O) if can_pack(weight_OI) else DenseLinear(weight_OI, bias_O)
