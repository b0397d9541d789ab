"""A decode step under one CUDA graph and a prefill, for two Llama shapes with random weights. Needs a GPU.

Usage: python -m tests.benchmarks.gpu_decode_step --out FILE [--context 512]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import Tensor

from engine.attention.backend import AttentionSpec
from engine.attention.meta import AttentionMeta
from engine.attention.triton_paged import TritonPagedAttention
from engine.kernels import argmax, jit, kv_write, paged_decode, paged_prefill, rms_norm, rotary, silu_mul, vector_linear
from tests.benchmarks.gpu_timing import time_replays, write_results

Tiles = Mapping[str, vector_linear.VectorTile]
NO_TILES: Tiles = MappingProxyType({})
EPS = 1e-5
PAGE = 16
READ_BYTES_PER_S = 4.1e12
FLOP_PER_S = 785e12
KERNELS = (argmax, kv_write, paged_decode, paged_prefill, rms_norm, rotary, silu_mul, vector_linear, jit)


@dataclass(frozen=True)
class Llama:
    """Sizes of a model."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ff: int
    vocab: int = 32000
    head_dim: int = 128


MODELS = (Llama("0.85B", 16, 2048, 16, 4, 5632), Llama("7.2B", 32, 4096, 32, 8, 14336))


def draw(*shape: int) -> Tensor:
    """Random bf16 weights."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02


@dataclass(frozen=True)
class Layer:
    """Weights of a layer."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    attention_norm: Tensor
    mlp_norm: Tensor


class Model:
    """Weights, cache and a batch of equal requests."""

    def __init__(self, shape: Llama, num_requests: int, new_tokens: int, context: int) -> None:
        s = self.shape = shape
        q_rows, qkv_rows = s.heads * s.head_dim, (s.heads + 2 * s.kv_heads) * s.head_dim
        self.layers = [
            Layer(
                draw(qkv_rows, s.hidden),
                draw(s.hidden, q_rows),
                draw(2 * s.ff, s.hidden),
                draw(s.hidden, s.ff),
                draw(s.hidden) + 1,
                draw(s.hidden) + 1,
            )
            for _ in range(s.layers)
        ]
        self.embedding, self.head, self.norm = draw(s.vocab, s.hidden), draw(s.vocab, s.hidden), draw(s.hidden) + 1
        columns = -(-context // PAGE)
        table = torch.randperm(num_requests * columns, device="cuda").view(num_requests, columns).int()
        cache_shape = (s.layers, 2, num_requests * columns, PAGE, s.kv_heads, s.head_dim)
        self.cache = torch.randn(cache_shape, device="cuda", dtype=torch.bfloat16)
        place = torch.arange(context - new_tokens, context, device="cuda")
        slots = (table[:, place // PAGE].long() * PAGE + place % PAGE).flatten()
        self.meta = AttentionMeta(
            torch.arange(num_requests + 1, device="cuda", dtype=torch.int32) * new_tokens,
            torch.full((num_requests,), context, device="cuda", dtype=torch.int32),
            table,
            slots,
            new_tokens,
            context,
        )
        self.tokens = torch.randint(0, s.vocab, (num_requests * new_tokens,), device="cuda")
        angle = torch.rand(num_requests * new_tokens, s.head_dim // 2, device="cuda") * 6.28
        self.angles = (
            torch.cat((angle.cos(),) * 2, -1).bfloat16(),
            torch.cat((-angle.sin(), angle.sin()), -1).bfloat16(),
        )
        spec = AttentionSpec(scale=s.head_dim**-0.5, windows=(None,) * s.layers)
        self.attend = TritonPagedAttention(spec).bind(self, self.meta)  # type: ignore[arg-type]

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """Pages of a layer."""
        return self.cache[layer, 0], self.cache[layer, 1]

    def scales(self, layer: int) -> tuple[float, float]:
        """Of a cache in model dtype."""
        return 1.0, 1.0

    @property
    def num_parameters(self) -> int:
        """All of them, the embedding included."""
        tensors = [self.embedding, self.head, self.norm]
        tensors += [t for layer in self.layers for t in vars(layer).values()]
        return sum(t.numel() for t in tensors)

    def heads_of(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values as views."""
        s = self.shape
        heads = qkv.view(qkv.shape[0], -1, s.head_dim)
        q, k, v = torch.split(heads, [s.heads, s.kv_heads, s.kv_heads], dim=1)
        return q, k, v

    def fused_step(self, tiles: Tiles = NO_TILES) -> Tensor:
        """One token: five kernels a layer; `tiles` by the name of the weight, else the default."""
        linear = vector_linear.vector_linear
        x = self.embedding.index_select(0, self.tokens)
        for number, layer in enumerate(self.layers):
            qkv = linear(x, layer.qkv, (layer.attention_norm, EPS), None, tiles.get("qkv"))
            attended = self.attend.attend_unrotated(self.heads_of(qkv), self.angles, number)
            x = linear(attended.flatten(1), layer.out, None, x, tiles.get("out"))
            gated = vector_linear.vector_gate_up(x, layer.gate_up, (layer.mlp_norm, EPS), tiles.get("gate_up"))
            x = linear(gated, layer.down, None, x, tiles.get("down"))
        return argmax.argmax_rows(F.linear(rms_norm.rms_norm(x, self.norm, EPS), self.head))

    def step(self) -> Tensor:
        """Any number of tokens: cuBLAS and fused elementwise kernels, eight kernels a layer."""
        x = self.embedding.index_select(0, self.tokens)
        added, residual = x, torch.zeros_like(x)
        for number, layer in enumerate(self.layers):
            normed, residual = rms_norm.add_rms_norm(added, residual, layer.attention_norm, EPS)
            attended = self.attend.attend_unrotated(self.heads_of(F.linear(normed, layer.qkv)), self.angles, number)
            normed, residual = rms_norm.add_rms_norm(
                F.linear(attended.flatten(1), layer.out), residual, layer.mlp_norm, EPS
            )
            added = F.linear(silu_mul.silu_mul(F.linear(normed, layer.gate_up)), layer.down)
        normed, _ = rms_norm.add_rms_norm(added, residual, self.norm, EPS)
        last = normed[self.meta.cu_q_B1[1:].long() - 1]
        return argmax.argmax_rows(F.linear(last, self.head))

    @property
    def prefill_flop(self) -> float:
        """Operations of the products and of causal attention of fresh prompts; the head for the last tokens only."""
        s = self.shape
        tokens, num = self.tokens.numel(), self.meta.seq_lens_B.numel()
        matrices = sum(t.numel() for layer in self.layers for t in (layer.qkv, layer.out, layer.gate_up, layer.down))
        length = tokens // num
        attention = 4 * s.heads * s.head_dim * s.layers * num * length * (length + 1) / 2
        return 2 * matrices * tokens + attention + 2 * s.vocab * s.hidden * num


def capture(step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Warm up and capture."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = step()
    torch.cuda.synchronize()
    return graph, out


def set_overlap(enabled: bool) -> None:
    """Switch programmatic dependent launch of our kernels."""
    for module in KERNELS:
        module.OVERLAPS = enabled  # type: ignore[attr-defined]


def measure_decode(shape: Llama, context: int) -> list[dict[str, Any]]:
    """Batch 1, ours and cuBLAS, with and without overlapping launches."""
    model = Model(shape, 1, 1, context)
    limit_s = 2 * model.num_parameters / READ_BYTES_PER_S
    rows = []
    for name, step, overlap in (
        ("fused", model.fused_step, True),
        ("fused, no overlap", model.fused_step, False),
        ("cublas", model.step, True),
        ("cublas, no overlap", model.step, False),
    ):
        set_overlap(overlap)
        graph, out = capture(step)
        seconds = time_replays(graph, 30)
        rows.append(
            {
                "model": shape.name,
                "parameters": model.num_parameters,
                "what": "decode batch 1",
                "variant": name,
                "context": context,
                "ms": seconds * 1e3,
                "tokens_per_s": 1 / seconds,
                "share_of_read_limit": limit_s / seconds,
                "token": int(out[0]),
            }
        )
    set_overlap(True)
    return rows


def measure_batch(shape: Llama, num: int, context: int) -> dict[str, Any]:
    """Static decode of a batch."""
    model = Model(shape, num, 1, context)
    graph, _ = capture(model.step)
    seconds = time_replays(graph, 20)
    return {
        "model": shape.name,
        "what": f"decode batch {num}",
        "context": context,
        "ms": seconds * 1e3,
        "tokens_per_s": num / seconds,
    }


def measure_prefill(shape: Llama) -> dict[str, Any]:
    """Four prompts of 2048 tokens."""
    model = Model(shape, 4, 2048, 2048)
    graph, _ = capture(model.step)
    seconds = time_replays(graph, 10)
    return {
        "model": shape.name,
        "what": "prefill 4 x 2048",
        "ms": seconds * 1e3,
        "share_of_matrix_rate": model.prefill_flop / seconds / FLOP_PER_S,
        "tokens_per_s": 8192 / seconds,
    }


def main() -> None:
    """Measure both models and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--models", nargs="*", default=[shape.name for shape in MODELS])
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        for shape in (shape for shape in MODELS if shape.name in options.models):
            rows += measure_decode(shape, options.context)
            rows.append(measure_batch(shape, 64, options.context))
            rows.append(measure_prefill(shape))
            torch.cuda.empty_cache()
            for row in rows:
                print({key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()})
            write_results(options.out, "gpu_decode_step", rows)


if __name__ == "__main__":
    main()
