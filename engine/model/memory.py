"""How much memory weights take, whatever form they are kept in."""

from collections.abc import Iterator

from torch import Tensor, nn

from engine.model.linear import PackedLinear


def weight_bytes(module: nn.Module) -> int:
    """Bytes of all parameters, buffers and packed matrices of a module; memory that several share counts once."""
    seen = {tensor.data_ptr(): tensor.nbytes for whole in _tensors(module) for tensor in _parts(whole)}
    packed = sum(child.num_bytes for child in module.modules() if isinstance(child, PackedLinear))
    return sum(seen.values()) + packed


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """The plain tensors inside; a quantised weight of torchao is a tensor made of several."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        inner = getattr(tensor, name)
        if inner is not None:
            yield from _parts(inner)
