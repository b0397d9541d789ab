"""Lines that PyTorch, transformers and Triton print in any program, engine or not."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.readers.text.engine_lines import Kind, Row, event, number, said, setting
from doctor.readers.text.stamp import Stamp

_LIMIT = re.compile(r"hit config\.(?:recompile_limit|cache_size_limit|accumulated_\w{1,40}) \((\d+)\)")
_DTYPE = re.compile(r"\b(?:model\.)?dtype\b[^\w]{1,6}torch\.(float32|float16|bfloat16)\b")
_WHY_PLAIN = re.compile(r"(more than two PCIe-only GPUs|lacks GPU P2P capability|spans across nodes)", re.IGNORECASE)
_FUNCTION = re.compile(r"function: '(\w{1,60})'")


def _limit(text: str, at: Stamp) -> Iterable[Row]:
    found = _LIMIT.search(text)
    if found is not None:
        yield event(None, at, "recompile_limit", "limit", count=number(found[1]))


def _recompiled(text: str, at: Stamp) -> Iterable[Row]:
    """`TORCH_LOGS=recompiles` prints one such line a compilation."""
    yield event(None, at, "recompiled")


def _dtype(text: str, at: Stamp) -> Iterable[Row]:
    found = _DTYPE.search(text)
    if found is not None:
        yield setting("transformers", at, "dtype", "dtype", found[1])


KINDS: tuple[Kind, ...] = (
    Kind("torch._dynamo hit config.", _limit),
    Kind("[__recompiles] Recompiling function", _recompiled),
    Kind("model.dtype", _dtype),
    said(None, "Custom allreduce is disabled because", "all_reduce_plain", _WHY_PLAIN),
    said(None, "recompile_limit reached", "recompile_limit"),
    said(None, "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled", "tf32_off"),
    said(None, "You are not running the flash-attention implementation", "attention_eager"),
    said(None, "`sdpa` attention does not support `output_attentions=True`", "attention_eager"),
    said(None, "Falling back to eager attention", "attention_eager"),
    said(None, "Falling back to the manual attention implementation", "attention_eager"),
    said(None, "Some parameters are on the meta device because they were offloaded to the", "offloading"),
    said(None, "Some parameters are on the meta device device because they were offloaded to the", "offloading"),
    said(None, "MatMul8bitLt: inputs will be cast from", "bnb_8bit"),
    said(None, "Setting OMP_NUM_THREADS environment variable for each process to be 1", "threads_one"),
)
