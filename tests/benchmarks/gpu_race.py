"""The engine and its peers on one GPU, on the same random-weight Llama, in one run. Needs a GPU.

Usage: python -m tests.benchmarks.gpu_race --size 0.85B --folder /tmp/model --who engine --out FILE
`--who` is engine or transformers; run both in turn on one machine. Workloads, all greedy, without an end of sequence:

    batch 1      one prompt of 128 tokens, 256 tokens of answer; the rate of the decode steps alone
    static 64    64 prompts of 128 tokens, 128 tokens of answer each, one static batch
    mixed 64     64 prompts of 16 to 256 tokens, 128 tokens of answer each, whole job
    prefill      4 prompts of 2048 tokens, one token of answer

Limits: 4.1 TB/s of reading and 785 TFLOP/s of bf16 matrix products, both measured on an H200.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig

from engine import LLM, SamplingParams
from engine.llm import Answer
from engine.profiling import Window, profiled

READ_BYTES_PER_S = 4.1e12
FLOP_PER_S = 785e12
MAX_LEN = 4096
Prompts = list[list[int]]


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ff: int
    vocab: int = 32000
    head_dim: int = 128

    def config(self) -> LlamaConfig:
        """As transformers describes it."""
        return LlamaConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.ff,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            max_position_embeddings=MAX_LEN,
            tie_word_embeddings=False,
            architectures=["LlamaForCausalLM"],
            dtype="bfloat16",
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer."""
        heads = (2 * self.heads + 2 * self.kv_heads) * self.head_dim
        return self.hidden * heads + 3 * self.hidden * self.ff

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.layers * self.layer_parameters + 2 * self.vocab * self.hidden

    def prefill_flop(self, num_prompts: int, length: int) -> float:
        """Multiplications and additions of a causal prefill with one row of logits per prompt."""
        products = 2 * num_prompts * length * self.layers * self.layer_parameters
        attention = 2 * num_prompts * self.layers * self.heads * self.head_dim * length * length
        return products + attention + 2 * num_prompts * self.vocab * self.hidden


SHAPES = {
    "tiny": Shape(2, 128, 2, 1, 256, vocab=1000, head_dim=64),
    "0.85B": Shape(16, 2048, 16, 4, 5632),
    "7.2B": Shape(32, 4096, 32, 8, 14336),
}


def make_checkpoint(shape: Shape, folder: Path) -> None:
    """Write random weights as a checkpoint, unless the folder holds one."""
    if (folder / "config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    weights = {
        "model.embed_tokens.weight": (shape.vocab, shape.hidden),
        "lm_head.weight": (shape.vocab, shape.hidden),
        "model.norm.weight": (shape.hidden,),
    }
    for number in range(shape.layers):
        prefix = f"model.layers.{number}."
        for name, heads in size.items():
            weights[f"{prefix}self_attn.{name}_proj.weight"] = (heads * shape.head_dim, shape.hidden)
        weights[f"{prefix}self_attn.o_proj.weight"] = (shape.hidden, shape.heads * shape.head_dim)
        weights[f"{prefix}mlp.gate_proj.weight"] = (shape.ff, shape.hidden)
        weights[f"{prefix}mlp.up_proj.weight"] = (shape.ff, shape.hidden)
        weights[f"{prefix}mlp.down_proj.weight"] = (shape.hidden, shape.ff)
        weights[f"{prefix}input_layernorm.weight"] = (shape.hidden,)
        weights[f"{prefix}post_attention_layernorm.weight"] = (shape.hidden,)
    tensors = {}
    for name, dims in weights.items():
        drawn = torch.randn(dims, device=device, dtype=torch.bfloat16) * 0.02
        tensors[name] = (drawn + 1 if len(dims) == 1 else drawn).cpu()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    shape.config().save_pretrained(folder)


def prompts(vocab: int, lengths: list[int], seed: int = 0) -> Prompts:
    """Random prompts of these lengths."""
    numbers = random.Random(seed)
    return [[numbers.randrange(3, vocab) for _ in range(length)] for length in lengths]


def mixed_lengths() -> list[int]:
    """64 lengths from 16 to 256."""
    numbers = random.Random(0)
    return [numbers.randint(16, 256) for _ in range(64)]


def timed(run: Callable[[], object], repeats: int, warm_up: Callable[[], object] | None = None) -> list[float]:
    """Seconds of each of some runs, after one that is not counted, or a shorter warm-up in its place."""
    (warm_up or run)()
    seconds = []
    for _ in range(repeats):
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        started = time.perf_counter()
        run()
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        seconds.append(time.perf_counter() - started)
    return seconds


class Engine:
    """This engine."""

    def __init__(self, folder: Path, options: dict[str, Any], trace: Path | None) -> None:
        self._folder = folder
        self._options = options
        self._trace = trace

    def _build(self, **options: Any) -> LLM:
        return LLM(str(self._folder), max_model_len=MAX_LEN, prefix_caching=False, **self._options, **options)

    def _generate(self, llm: LLM, batch: Prompts, length: int) -> list[Answer]:
        answers = llm.generate(batch, _greedy(length))
        assert all(len(answer.token_ids) == length for answer in answers)
        return answers

    def batch_1(self, batch: Prompts, length: int) -> dict[str, Any]:
        """Rate of decode steps."""
        llm = self._build(max_num_seqs=1)
        self._generate(llm, batch, length)
        gaps = [statistics.mean(self._generate(llm, batch, length)[0].itl_s[8:]) for _ in range(3)]
        return {"seconds_per_token": gaps, "counters": llm.core.counters.as_dict()}

    def batched(self, batch: Prompts, length: int, **options: Any) -> dict[str, Any]:
        """Whole jobs."""
        llm = self._build(max_num_seqs=64, **options)
        llm.generate(batch[:2], _greedy(4))
        llm.core.counters.reset()
        seconds = timed(lambda: self._generate(llm, batch, length), 3)
        if self._trace is not None and length > 1:
            with profiled(llm.core.loop, "torch", self._trace, Window(skip=40, length=20)):
                self._generate(llm, batch, length)
        return {"seconds": seconds, "counters": llm.core.counters.as_dict()}


class Transformers:
    """`generate` and `generate_batch` of transformers."""

    def __init__(self, folder: Path) -> None:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa")
        self._model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()

    def _generate(self, batch: Prompts, length: int) -> Any:
        longest = max(map(len, batch))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in batch], device=self._model.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in batch], device=self._model.device)
        return self._model.generate(
            ids, attention_mask=mask, max_new_tokens=length, do_sample=False, eos_token_id=None, pad_token_id=0
        )

    def batch_1(self, batch: Prompts, length: int) -> dict[str, Any]:
        """Decode steps: the time of the whole less that of the first token."""
        self._generate(batch, 8)
        whole, first = timed(lambda: self._generate(batch, length), 1), timed(lambda: self._generate(batch, 1), 1)
        return {"seconds_per_token": [(a - b) / (length - 1) for a, b in zip(whole, first, strict=True)]}

    def batched(self, batch: Prompts, length: int) -> dict[str, Any]:
        """Whole jobs of one padded batch."""
        return {
            "seconds": timed(lambda: self._generate(batch, length), 2, lambda: self._generate(batch, min(length, 4)))
        }

    def continuous(self, batch: Prompts, length: int) -> dict[str, Any]:
        """Whole jobs of continuous batching."""

        def run(length: int) -> None:
            config = GenerationConfig(  # type: ignore[no-untyped-call]
                max_new_tokens=length, do_sample=False, eos_token_id=-1, pad_token_id=0
            )
            answers = self._model.generate_batch(batch, generation_config=config, progress_bar=False)
            assert all(len(answer.generated_tokens) == length for answer in answers.values())

        return {"seconds": timed(lambda: run(length), 1, lambda: run(min(length, 4)))}


def _greedy(length: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_new_tokens=length, ignore_eos=True)


def race(
    who: str, shape: Shape, folder: Path, options: dict[str, Any], scale: int, trace: Path | None
) -> dict[str, Any]:
    """All workloads for one competitor; `scale` divides lengths, for a dry run."""
    one = prompts(shape.vocab, [128 // scale])
    equal = prompts(shape.vocab, [128 // scale] * 64)
    mixed = prompts(shape.vocab, [max(1, length // scale) for length in mixed_lengths()])
    long = prompts(shape.vocab, [2048 // scale] * 4)
    results: dict[str, Any] = {}
    if who == "engine":
        engine = Engine(folder, options, trace)
        runs: dict[str, Callable[[], dict[str, Any]]] = {
            "batch 1": lambda: engine.batch_1(one, 256 // scale),
            "static 64": lambda: engine.batched(equal, 128 // scale, batching="static", max_num_batched_tokens=8192),
            "mixed 64": lambda: engine.batched(mixed, 128 // scale),
            "prefill": lambda: engine.batched(long, 1, max_num_batched_tokens=8192),
        }
    else:
        peer = Transformers(folder)
        runs = {
            "batch 1": lambda: peer.batch_1(one, 128 // scale),
            "static 64": lambda: peer.batched(equal, 128 // scale),
            "mixed 64": lambda: peer.continuous(mixed, 128 // scale),
            "prefill": lambda: peer.batched(long, 1),
        }
    for name, run in runs.items():
        try:
            results[name] = run()
        except Exception as error:  # noqa: BLE001  one peer that fails must not cost the figures of the others
            results[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
        gc.collect()
        torch.cuda.empty_cache()
        print(name, _headline(name, results[name], shape, scale), flush=True)
    return results


def _headline(name: str, result: dict[str, Any], shape: Shape, scale: int) -> str:
    if "error" in result:
        return str(result["error"])
    if "seconds_per_token" in result:
        best = statistics.median(result["seconds_per_token"])
        share = shape.parameters * 2 / READ_BYTES_PER_S / best
        result |= {"tokens_per_s": 1 / best, "share_of_read_limit": share}
        return f"{1 / best:.1f} tok/s, {share:.1%} of the read limit"
    seconds = statistics.median(result["seconds"])
    if name == "prefill":
        share = shape.prefill_flop(4, 2048 // scale) / seconds / FLOP_PER_S
        result |= {"share_of_matrix_rate": share}
        return f"{seconds * 1e3:.1f} ms, {share:.1%} of the matrix rate"
    result |= {"tokens_per_s": 64 * (128 // scale) / seconds}
    return f"{64 * (128 // scale) / seconds:.0f} tok/s"


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SHAPES, default="tiny")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--who", choices=("engine", "transformers"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", type=int, default=1, help="Divides all lengths, for a dry run.")
    parser.add_argument("--options", type=json.loads, default={}, help="More options of the engine, as JSON.")
    parser.add_argument("--trace", type=Path, help="Kineto trace of 20 steps of the last batched job of the engine.")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.size]
    started = time.perf_counter()
    make_checkpoint(shape, arguments.folder)
    print(f"checkpoint after {time.perf_counter() - started:.1f} s", flush=True)
    results = race(arguments.who, shape, arguments.folder, arguments.options, arguments.scale, arguments.trace)
    about = {
        "size": arguments.size,
        "parameters": shape.parameters,
        "who": arguments.who,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "options": arguments.options,
    }
    arguments.out.write_text(json.dumps({"about": about, "results": results}, indent=1), encoding="utf-8")
    print(f"all after {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
