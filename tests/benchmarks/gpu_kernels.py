"""Each kernel against the ceilings of the device and against PyTorch. Needs a GPU.

Usage: python -m tests.benchmarks.gpu_kernels --out FILE [--only SECTION ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.attention.meta import AttentionMeta
from engine.kernels.kv_write import write_kv
from engine.kernels.paged_decode import paged_decode
from engine.kernels.paged_prefill import paged_prefill
from engine.kernels.paging import NewTokens, Pages, Scores
from engine.kernels.rms_norm import add_rms_norm
from engine.kernels.rotary import rotate
from engine.kernels.silu_mul import silu_mul, silu_mul_reference
from engine.kernels.split_merge import DecodeCounters
from engine.kernels.vector_linear import VectorTile, vector_gate_up, vector_linear
from tests.benchmarks.gpu_timing import time_calls, write_results

BF16 = torch.bfloat16
SCALE = 128**-0.5
SDPA_BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION)
LAYERS = {
    "7.2B qkv": (6144, 4096),
    "7.2B out": (4096, 4096),
    "7.2B gate_up": (28672, 4096),
    "7.2B down": (4096, 14336),
    "7.2B head": (32000, 4096),
    "0.85B qkv": (3072, 2048),
    "0.85B out": (2048, 2048),
    "0.85B gate_up": (11264, 2048),
    "0.85B down": (2048, 5632),
    "0.85B head": (32000, 2048),
}
TILES = (
    VectorTile(2, 2048, 4),
    VectorTile(4, 1024, 4),
    VectorTile(4, 2048, 4),
    VectorTile(8, 512, 4),
    VectorTile(8, 1024, 8),
    VectorTile(1, 4096, 4),
    VectorTile(2, 1024, 2),
    VectorTile(4, 512, 2),
)
Row = dict[str, Any]


def draw(*shape: int) -> Tensor:
    """Random bf16 numbers on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=BF16)


def measure_ceilings() -> list[Row]:
    """Copy, read and matrix rates that PyTorch reaches."""
    big = draw(2**31)
    target = torch.empty_like(big)
    copy_s = time_calls([lambda: target.copy_(big)])
    read_s = time_calls([lambda: torch.sum(big.view(torch.float32), dim=0)])
    a, b = draw(8192, 8192), draw(8192, 8192)
    product_s = time_calls([lambda: a @ b] * 5)
    return [
        {"what": "copy", "bytes_per_s": 2 * big.nbytes / copy_s},
        {"what": "read", "bytes_per_s": big.nbytes / read_s},
        {"what": "product 8192", "flop_per_s": 2 * 8192**3 / product_s},
    ]


def rotating_weights(num_out: int, num_in: int) -> list[Tensor]:
    """Enough matrices that none is in the cache when its turn comes."""
    count = max(4, -(-300_000_000 // (2 * num_out * num_in)))
    return [draw(num_out, num_in) for _ in range(count)]


def measure_vector_linear(layers: Sequence[str] = tuple(LAYERS)) -> list[Row]:
    """One token through every layer of the two models, for several tiles, and up to 64 through cuBLAS."""
    rows: list[Row] = []
    for name in layers:
        weights = rotating_weights(*LAYERS[name])
        for tile in TILES:
            seconds = time_calls(one_token_calls(name, weights, tile))
            rows.append(linear_row(name, f"triton {tile.rows}x{tile.columns}/{tile.num_warps}", 1, weights[0], seconds))
        for tokens in (1, 2, 4, 8, 16, 32, 64):
            x = draw(tokens, LAYERS[name][1])
            seconds = time_calls([partial(F.linear, x, weight) for weight in weights])
            rows.append(linear_row(name, "cublas", tokens, weights[0], seconds))
    return rows


def one_token_calls(name: str, weights: list[Tensor], tile: VectorTile) -> list[Callable[[], object]]:
    """The kernel of a layer with what it carries in a model."""
    num_out, num_in = LAYERS[name]
    x, norm, residual = draw(1, num_in), (draw(num_in), 1e-5), draw(1, num_out)
    if name.endswith("gate_up"):
        return [partial(vector_gate_up, x, weight, norm, tile) for weight in weights]
    if name.endswith(("out", "down")):
        return [partial(vector_linear, x, weight, None, residual, tile) for weight in weights]
    return [partial(vector_linear, x, weight, norm, None, tile) for weight in weights]


def linear_row(layer: str, kernel: str, tokens: int, weight: Tensor, seconds: float) -> Row:
    """One measured product."""
    rate = weight.nbytes / seconds
    return {"layer": layer, "kernel": kernel, "tokens": tokens, "us": seconds * 1e6, "bytes_per_s": rate}


@dataclass(frozen=True)
class Requests:
    """Equal requests over their own pages."""

    pages: Pages
    meta: AttentionMeta
    q_THD: Tensor
    k_TND: Tensor
    v_TND: Tensor


def make_requests(num: int, q_len: int, kv_len: int, heads: tuple[int, int], page: int) -> Requests:
    """`num` requests with `q_len` new tokens of `kv_len`; blocks in random order."""
    columns = -(-kv_len // page)
    table = torch.randperm(num * columns, device="cuda").view(num, columns).int()
    pages = Pages(draw(num * columns, page, heads[1], 128), draw(num * columns, page, heads[1], 128))
    place = torch.arange(kv_len - q_len, kv_len, device="cuda")
    slots = table[:, place // page].long() * page + place % page
    meta = AttentionMeta(
        torch.arange(num + 1, device="cuda", dtype=torch.int32) * q_len,
        torch.full((num,), kv_len, device="cuda", dtype=torch.int32),
        table,
        slots.flatten(),
        q_len,
        kv_len,
    )
    tokens = num * q_len
    new = [draw(tokens, count, 128) for count in (heads[0], heads[1], heads[1])]
    return Requests(pages, meta, *new)


def decode(requests: Requests, counters: DecodeCounters) -> Tensor:
    """Write the new tokens and attend."""
    out = torch.empty_like(requests.q_THD)
    new = NewTokens(requests.q_THD, (requests.k_TND, requests.v_TND))
    paged_decode(new, requests.pages, requests.meta, Scores(SCALE), counters, out)
    return out


def prefill(requests: Requests) -> Tensor:
    """Attend; the pages hold the new tokens."""
    out = torch.empty_like(requests.q_THD)
    paged_prefill(NewTokens(requests.q_THD), requests.pages, requests.meta, Scores(SCALE), out)
    return out


def contiguous_decode(requests: Requests) -> Tensor:
    """The same keys as if they lay in order, by PyTorch's attention."""
    num, kv_len = requests.meta.seq_lens_B.numel(), requests.meta.max_k
    pages = (requests.pages.k_BSND, requests.pages.v_BSND)
    k, v = (x.view(num, kv_len, -1, 128).transpose(1, 2) for x in pages)
    return F.scaled_dot_product_attention(requests.q_THD.unsqueeze(2), k, v, enable_gqa=True)


DECODE_CASES = (
    (1, 1, 512, (32, 8), 16),
    (1, 1, 512, (32, 8), 256),
    (1, 1, 2048, (32, 8), 16),
    (1, 1, 8192, (32, 8), 16),
    (1, 1, 512, (16, 4), 16),
    (1, 5, 2048, (32, 8), 16),
    (64, 1, 1024, (32, 8), 16),
    (64, 1, 1024, (32, 8), 64),
    (64, 1, 4096, (32, 8), 16),
    (64, 5, 1024, (32, 8), 16),
    (64, 1, 1024, (16, 4), 16),
)


def measure_decode_attention(
    cases: Sequence[tuple[int, int, int, tuple[int, int], int]] = DECODE_CASES, *, has_peer: bool = True
) -> list[Row]:
    """Decode and verification for some batches, page sizes and lengths, and SDPA over contiguous keys."""
    rows: list[Row] = []
    counters = DecodeCounters(torch.device("cuda"))
    for num, q_len, kv_len, heads, page in cases:
        layers = [make_requests(num, q_len, kv_len, heads, page) for _ in range(4)]
        kv_bytes = 2 * num * kv_len * heads[1] * 128 * 2
        case = {"requests": num, "q_len": q_len, "kv_len": kv_len, "heads": heads, "page": page}
        seconds = time_calls([partial(decode, requests, counters) for requests in layers] * 4)
        rows.append({**case, "kernel": "triton", "us": seconds * 1e6, "bytes_per_s": kv_bytes / seconds})
        if q_len == 1 and has_peer:
            seconds = time_calls([partial(contiguous_decode, requests) for requests in layers] * 4)
            rows.append({**case, "kernel": "sdpa", "us": seconds * 1e6, "bytes_per_s": kv_bytes / seconds})
    return rows


PREFILL_CASES = (
    (4, 2048, 2048, (32, 8)),
    (4, 2048, 2048, (16, 4)),
    (1, 8192, 8192, (32, 8)),
    (4, 512, 4096, (32, 8)),
)


def measure_prefill_attention(
    cases: Sequence[tuple[int, int, int, tuple[int, int]]] = PREFILL_CASES, *, has_peers: bool = True
) -> list[Row]:
    """Prompts of 2048 tokens, and one of 8192, against FlashAttention-2 and cuDNN in PyTorch."""
    rows: list[Row] = []
    for num, q_len, kv_len, heads in cases:
        for page in (16, 256):
            requests = make_requests(num, q_len, kv_len, heads, page)
            flop = 4 * num * heads[0] * 128 * (q_len * (kv_len - q_len) + q_len * (q_len + 1) / 2)
            case = {"requests": num, "q_len": q_len, "kv_len": kv_len, "heads": heads, "page": page}
            seconds = time_calls([partial(prefill, requests)] * 3)
            rows.append({**case, "kernel": "triton", "us": seconds * 1e6, "flop_per_s": flop / seconds})
        if q_len == kv_len and has_peers:
            rows += [
                {**case, "kernel": backend.name, **time_sdpa(requests, backend, flop)} for backend in SDPA_BACKENDS
            ]
    return rows


def time_sdpa(requests: Requests, backend: SDPBackend, flop: float) -> Row:
    """Causal attention of fresh prompts by one of PyTorch's kernels, or why it refused."""
    num = requests.meta.seq_lens_B.numel()
    q, k, v = (
        x.view(num, -1, x.shape[1], 128).transpose(1, 2) for x in (requests.q_THD, requests.k_TND, requests.v_TND)
    )
    try:
        with sdpa_kernel(backend):
            call = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True, enable_gqa=True)
            seconds = time_calls([call] * 3)
    except RuntimeError as error:
        return {"error": str(error).splitlines()[0]}
    return {"us": seconds * 1e6, "flop_per_s": flop / seconds}


def measure_elementwise() -> list[Row]:
    """Norm, gate, rotation and KV write of 8192 tokens, against PyTorch's operators."""
    rows: list[Row] = []
    for hidden, ff, heads in ((4096, 14336, (32, 8)), (2048, 5632, (16, 4))):
        x, residual, weight, gate_up = draw(8192, hidden), draw(8192, hidden), draw(hidden), draw(8192, 2 * ff)
        qk, cos, sin = draw(8192, sum(heads), 128), draw(8192, 128), draw(8192, 128)
        requests = make_requests(4, 2048, 2048, heads, 16)
        store = partial(write_kv, requests.k_TND, requests.v_TND, requests.pages, requests.meta.slot_mapping_T)
        calls: dict[str, tuple[Callable[[], object], int]] = {
            "add_rms_norm": (partial(add_rms_norm, x, residual, weight, 1e-5), 4 * x.nbytes),
            "torch add + rms_norm": (partial(torch_add_rms_norm, x, residual, weight), 4 * x.nbytes),
            "silu_mul": (partial(silu_mul, gate_up), gate_up.nbytes * 3 // 2),
            "torch silu * up": (partial(silu_mul_reference, gate_up), gate_up.nbytes * 3 // 2),
            "rotate": (partial(rotate, qk, cos, sin), 2 * qk.nbytes + 2 * cos.nbytes),
            "write_kv": (store, 4 * requests.k_TND.nbytes),
        }
        for name, (call, moved) in calls.items():
            seconds = time_calls([call] * 3)
            rows.append({"hidden": hidden, "kernel": name, "us": seconds * 1e6, "bytes_per_s": moved / seconds})
    return rows


def torch_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """PyTorch's two kernels."""
    return F.rms_norm(x + residual, weight.shape, weight, 1e-5)


SECTIONS = {
    "ceilings": measure_ceilings,
    "decode_attention": measure_decode_attention,
    "prefill_attention": measure_prefill_attention,
    "elementwise": measure_elementwise,
    "vector_linear": measure_vector_linear,
}


def main() -> None:
    """Run the sections and write their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(SECTIONS), choices=list(SECTIONS))
    options = parser.parse_args()
    torch.manual_seed(0)
    rows: list[Row] = []
    for name in options.only:
        for row in SECTIONS[name]():
            rows.append({"section": name, **row})
            print({key: f"{value:.4g}" if isinstance(value, float) else value for key, value in rows[-1].items()})
        torch.cuda.empty_cache()
        write_results(options.out, "gpu_kernels", rows)


if __name__ == "__main__":
    main()
