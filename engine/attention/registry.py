"""Attention backends by name. Modules are imported on first use: Triton and CUDA need not exist to name them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.attention.backend import AttentionBackend, AttentionSpec

_BACKENDS = {
    "eager": ("engine.attention.eager", "EagerAttention"),
    "torch_ref": ("engine.attention.torch_ref", "TorchReferenceAttention"),
    "triton_paged": ("engine.attention.triton_paged", "TritonPagedAttention"),
    "varlen": ("engine.attention.varlen", "VarlenAttention"),
}


def backend_names() -> tuple[str, ...]:
    """Names that `create_backend` accepts, sorted."""
    return tuple(sorted(_BACKENDS))


def create_backend(name: str, spec: AttentionSpec) -> AttentionBackend:
    """Build the backend called `name` for a model.

    Raises:
        ConfigError: no backend has this name; the message lists those that exist.
    """
    if name not in _BACKENDS:
        raise ConfigError(f"unknown attention backend {name!r}; choose one of {', '.join(backend_names())}")
    module, attribute = _BACKENDS[name]
    factory: Callable[[AttentionSpec], AttentionBackend] = getattr(import_module(module), attribute)
    return factory(spec)
