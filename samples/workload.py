"""The program behind the recordings here: a small Llama-like decoder on one GPU, run in one named way.

Usage: `python samples/workload.py CASE sick|fixed time|nsys|kineto [OUT]`, under `nsys profile` for `nsys` (each
sample's README has the command). `time` prints the unprofiled median of three. Weights are random: only the work
counts.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import math
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

torch: Any = importlib.import_module("torch")
functional: Any = torch.nn.functional

LAYERS, HIDDEN, HEADS, KV_HEADS, FEED_FORWARD, VOCABULARY = 16, 2048, 16, 4, 5632, 32_000
HEAD_DIM = HIDDEN // HEADS
EXPERTS, EXPERT_HIDDEN = 32, 1024
DEVICE = "cuda"


@dataclass(frozen=True)
class Case:
    """One way to run the decoder; what `sick` does, `fixed` leaves out.

    Attributes:
        name: what is done, see `CASES`.
        is_sick: False runs the cured variant.
        batch: sequences.
        context: tokens of each prompt.
        steps: decode steps after the prefill.
        max_length: tokens a cache of fixed size holds.
    """

    name: str
    is_sick: bool
    batch: int = 8
    context: int = 512
    steps: int = 8
    max_length: int = 2048

    def does(self, name: str) -> bool:
        """Tell whether this run has the problem of that name."""
        return self.is_sick and self.name == name

    @property
    def uses_graph(self) -> bool:
        """Decode steps replay a CUDA graph."""
        return self.name in {"healthy", "synctok"} or (self.name == "launch" and not self.is_sick)


CASES: dict[str, dict[str, int]] = {
    "healthy": {},  # a CUDA graph a decode step
    "launch": {"batch": 1},  # eager decode; fixed: a CUDA graph
    "h2d": {},  # 4 x 32 MiB from pageable memory in each step; fixed: pinned, on a stream of its own
    "hostgap": {},  # 30 ms of Python before each step
    "synctrap": {},  # a wait after every layer and one for every sequence
    "synctok": {"batch": 64},  # a graph, then a wait for every sequence
    "malloctrap": {},  # the allocator's cache is emptied before each step
    "mallocs": {},  # a workspace from cudaMalloc in every layer; fixed: none
    "microbatch": {"steps": 4},  # one sequence after another
    "moe": {"steps": 3},  # a Python loop over experts; fixed: all experts in one product
    "attention": {"batch": 2, "context": 8192, "steps": 2, "max_length": 8704},  # scores in memory
    "kvcat": {"batch": 32, "context": 2048, "max_length": 2304},  # the cache grows by cat
    "fp32trap": {"context": 16, "steps": 4},  # everything in fp32, where launches hold the run up
}


def named_range(name: str) -> AbstractContextManager[None]:
    """An NVTX range."""
    scope: AbstractContextManager[None] = torch.cuda.nvtx.range(name)
    return scope


class FixedCache:
    """Keys and values of all layers at their full length, shape (B, KV_HEADS, max_length, HEAD_DIM)."""

    def __init__(self, batch: int, length: int, dtype: Any) -> None:
        shape = (batch, KV_HEADS, length, HEAD_DIM)
        self.keys = [torch.zeros(shape, device=DEVICE, dtype=dtype) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]

    def extended(self, layer: int, key: Any, value: Any, positions: Any) -> tuple[Any, Any]:
        """Write new tokens and give back everything."""
        length = key.shape[2]
        for kept, new in ((self.keys[layer], key), (self.values[layer], value)):
            if length > 1:  # a prompt fills the cache from its start
                kept[:, :, :length] = new
            else:
                kept.index_copy_(2, positions, new)
        return self.keys[layer], self.values[layer]


class GrowingCache:
    """Keys and values of all layers, one token longer in each step."""

    def __init__(self) -> None:
        self.keys: list[Any] = [None] * LAYERS
        self.values: list[Any] = [None] * LAYERS

    def extended(self, layer: int, key: Any, value: Any, positions: Any) -> tuple[Any, Any]:
        """Join new tokens and give back everything."""
        del positions
        for kept, new in ((self.keys, key), (self.values, value)):
            kept[layer] = new if kept[layer] is None else torch.cat((kept[layer], new), 2)
        return self.keys[layer], self.values[layer]


Cache = FixedCache | GrowingCache


def rms_norm(x: Any, gain: Any) -> Any:
    """RMSNorm in fp32, in separate kernels."""
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * gain


class Decoder:
    """Sixteen layers with random weights, 0.8 B parameters."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.dtype = torch.float32 if case.does("fp32trap") else torch.bfloat16
        self.layers = [self._layer() for _ in range(LAYERS)]
        self.embedding = self._weight(VOCABULARY, HIDDEN)
        self.head = self._weight(VOCABULARY, HIDDEN)
        self.norm = self._weight(HIDDEN) + 1
        dims = torch.arange(0, HEAD_DIM, 2, device=DEVICE).float()
        self.frequencies = 1.0 / (10_000 ** (dims / HEAD_DIM))
        self.places = torch.arange(case.max_length, device=DEVICE)

    def _weight(self, *shape: int) -> Any:
        return torch.randn(*shape, device=DEVICE, dtype=self.dtype) * 0.02

    def _layer(self) -> dict[str, Any]:
        kv_width = KV_HEADS * HEAD_DIM
        shapes: dict[str, tuple[int, ...]] = {
            "query": (HIDDEN, HIDDEN), "key": (kv_width, HIDDEN), "value": (kv_width, HIDDEN), "out": (HIDDEN, HIDDEN),
            "gate": (FEED_FORWARD, HIDDEN), "up": (FEED_FORWARD, HIDDEN), "down": (HIDDEN, FEED_FORWARD),
            "attention_norm": (HIDDEN,), "mlp_norm": (HIDDEN,),
        }  # fmt: skip
        if self.case.name == "moe":
            shapes["router"] = (EXPERTS, HIDDEN)
            shapes["expert_up"] = (EXPERTS, EXPERT_HIDDEN, HIDDEN)
            shapes["expert_down"] = (EXPERTS, HIDDEN, EXPERT_HIDDEN)
        layer = {name: self._weight(*shape) for name, shape in shapes.items()}
        return layer | {name: layer[name] + 1 for name in ("attention_norm", "mlp_norm")}

    def cache(self) -> Cache:
        """A cache for one forward pass: one sequence in the micro-batched case, else the batch."""
        rows = 1 if self.case.does("microbatch") else self.case.batch
        return GrowingCache() if self.case.does("kvcat") else FixedCache(rows, self.case.max_length, self.dtype)

    def forward(self, ids_BT: Any, positions_T: Any, cache: Cache, *, is_prefill: bool) -> Any:
        """Next tokens, int64 (B, 1), of token ids (B, T) at positions (T,)."""
        x = self.embedding[ids_BT]
        mask = None
        if not is_prefill and isinstance(cache, FixedCache):
            seen = (self.places <= positions_T[-1])[None, None, None, :]
            mask = seen.expand(ids_BT.shape[0], 1, 1, self.case.max_length)
        for place, layer in enumerate(self.layers):
            with named_range(f"layer_{place}"):
                x = x + self._attention_block(place, x, positions_T, cache, mask)
                x = x + self._mlp(layer, rms_norm(x, layer["mlp_norm"]))
                if self.case.does("synctrap"):
                    torch.cuda.synchronize()
                if self.case.does("mallocs"):
                    _take_and_give_back(64 << 20)
        return (rms_norm(x[:, -1], self.norm) @ self.head.T).argmax(-1, keepdim=True)

    def _attention_block(self, place: int, x: Any, positions_T: Any, cache: Cache, mask: Any) -> Any:
        layer, (batch, length, _) = self.layers[place], x.shape
        normed = rms_norm(x, layer["attention_norm"])
        query = self._rotated((normed @ layer["query"].T).view(batch, length, HEADS, HEAD_DIM), positions_T)
        key = self._rotated((normed @ layer["key"].T).view(batch, length, KV_HEADS, HEAD_DIM), positions_T)
        value = (normed @ layer["value"].T).view(batch, length, KV_HEADS, HEAD_DIM).transpose(1, 2)
        is_prefill = length > 1
        keys, values = cache.extended(place, key, value, positions_T)
        if is_prefill:  # a prompt attends to itself alone
            keys, values = key, value
        attended = self._attention(query, keys, values, mask, is_causal=is_prefill)
        return attended.transpose(1, 2).reshape(batch, length, HIDDEN) @ layer["out"].T

    def _rotated(self, x_BTHD: Any, positions_T: Any) -> Any:
        angle = positions_T.float()[:, None] * self.frequencies
        cosine, sine = angle.cos().to(self.dtype), angle.sin().to(self.dtype)
        x = x_BTHD.transpose(1, 2)
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)

    def _attention(self, query: Any, key: Any, value: Any, mask: Any, *, is_causal: bool) -> Any:
        if not self.case.does("attention"):
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, is_causal=is_causal, enable_gqa=True
            )
        key, value = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (key, value))
        scores = (query @ key.transpose(-1, -2)) / math.sqrt(HEAD_DIM)
        if is_causal:
            forbidden = torch.full(scores.shape[-2:], -math.inf, device=DEVICE, dtype=scores.dtype)
            scores = scores + forbidden.triu(1)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        return scores.softmax(-1) @ value

    def _mlp(self, layer: dict[str, Any], x: Any) -> Any:
        if self.case.name == "moe":
            return self._experts(layer, x.reshape(-1, HIDDEN)).reshape(x.shape)
        return (functional.silu(x @ layer["gate"].T) * (x @ layer["up"].T)) @ layer["down"].T

    def _experts(self, layer: dict[str, Any], tokens: Any) -> Any:
        weights, chosen = (tokens @ layer["router"].T).softmax(-1).topk(2, -1)
        if self.case.is_sick:
            total = torch.zeros_like(tokens)
            for expert in range(EXPERTS):
                row, slot = (chosen == expert).nonzero(as_tuple=True)
                if row.numel():
                    hidden = functional.silu(tokens[row] @ layer["expert_up"][expert].T)
                    total.index_add_(0, row, hidden @ layer["expert_down"][expert].T * weights[row, slot, None])
            return total
        hidden = functional.silu(torch.einsum("th,efh->tef", tokens, layer["expert_up"]))
        answers = torch.einsum("tef,ehf->teh", hidden, layer["expert_down"])
        gates = torch.zeros(tokens.shape[0], EXPERTS, device=DEVICE, dtype=self.dtype).scatter_(1, chosen, weights)
        return (answers * gates[..., None]).sum(1)


class Run:
    """A prefill and decode steps, with the problem of the case in its place."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.decoder = Decoder(case)
        self.side_stream = torch.cuda.Stream()
        self.tables = [torch.randn(8 << 20) for _ in range(4)] if case.name == "h2d" else []
        if not case.is_sick:
            self.tables = [table.pin_memory() for table in self.tables]
        if case.uses_graph:
            self._capture()

    def _capture(self) -> None:
        self.cache = self.decoder.cache()
        self.ids = torch.zeros(self.case.batch, 1, dtype=torch.long, device=DEVICE)
        self.position = torch.tensor([self.case.context], device=DEVICE)
        warm_up = torch.cuda.Stream()
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):
            for _ in range(3):
                self.decoder.forward(self.ids, self.position, self.cache, is_prefill=False)
        torch.cuda.current_stream().wait_stream(warm_up)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.next_ids = self.decoder.forward(self.ids, self.position, self.cache, is_prefill=False)

    def generate(self, steps: int) -> None:
        """Serve one batch: prefill, then `steps` decode steps."""
        case = self.case
        with named_range(f"request_batch[{case.batch}]"):
            prompts = torch.randint(0, VOCABULARY, (case.batch, case.context), device=DEVICE)
            parts = prompts.split(1 if case.does("microbatch") else case.batch)
            caches = [self.cache if case.uses_graph else self.decoder.cache() for _ in parts]
            positions = torch.arange(case.context, device=DEVICE)
            with named_range("prefill"):
                tokens = [
                    self.decoder.forward(part, positions, cache, is_prefill=True)
                    for part, cache in zip(parts, caches, strict=True)
                ]
            for step in range(steps):
                with named_range("decode_step"):
                    tokens = self._decode(tokens, caches, step)

    def _decode(self, tokens: list[Any], caches: list[Cache], step: int) -> list[Any]:
        case = self.case
        position = torch.tensor([case.context + step], device=DEVICE)
        self._before_step()
        if case.uses_graph:
            self.ids.copy_(tokens[0])
            self.position.copy_(position)
            self.graph.replay()
            tokens = [self.next_ids.clone()]
        else:
            tokens = [
                self.decoder.forward(ids, position, cache, is_prefill=False)
                for ids, cache in zip(tokens, caches, strict=True)
            ]
        if case.does("synctrap") or case.does("synctok"):
            for row in range(case.batch):
                tokens[0][row, 0].item()
        return tokens

    def _before_step(self) -> None:
        for table in self.tables:
            if self.case.is_sick:
                table.to(DEVICE)
            else:
                with torch.cuda.stream(self.side_stream):
                    table.to(DEVICE, non_blocking=True)
        if self.case.does("hostgap"):
            with named_range("schedule"):
                _compute_for(0.030)
        if self.case.does("malloctrap"):
            torch.cuda.empty_cache()


def _take_and_give_back(size_bytes: int) -> None:
    """What a library does that makes its workspace anew in each call."""
    runtime, address = _cuda_runtime(), ctypes.c_void_p()
    runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size_bytes))
    runtime.cudaFree(address)


@functools.cache
def _cuda_runtime() -> Any:
    """The runtime library that torch has loaded already."""
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123 - not a file of ours
        [path, *_] = {line.split()[-1] for line in maps if "libcudart.so" in line}
    return ctypes.CDLL(path)


def _compute_for(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(200))


def measure(run: Run) -> None:
    """Print the unprofiled median of three as JSON."""
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run.generate(2 * run.case.steps)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    variant = "sick" if run.case.is_sick else "fixed"
    sys.stdout.write(json.dumps({"case": run.case.name, "variant": variant, "seconds": sorted(times)[1]}) + "\n")


def record_for_nsys(run: Run) -> None:
    """Run once between cudaProfilerStart and cudaProfilerStop."""
    torch.cuda.cudart().cudaProfilerStart()
    run.generate(run.case.steps)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def record_with_torch(run: Run, out: str) -> None:
    """Run three steps under the PyTorch profiler and write its trace."""
    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as recording:
        run.generate(3)
        torch.cuda.synchronize()
    recording.export_chrome_trace(out)


def main(arguments: list[str]) -> None:
    """Run what the command line names."""
    name, variant, how, *out = arguments
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    run = Run(Case(name, variant == "sick", **CASES[name]))
    for _ in range(2):
        run.generate(2)
    torch.cuda.synchronize()
    if how == "time":
        measure(run)
    elif how == "nsys":
        record_for_nsys(run)
    else:
        record_with_torch(run, out[0])


if __name__ == "__main__":
    main(sys.argv[1:])
