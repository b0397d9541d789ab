"""gpt-fast at batch 1 on the Llama shapes of `gpu_race`, with random weights. Needs a GPU and a checkout of gpt-fast.

Usage: python -m tests.benchmarks.gpu_race_gpt_fast --size 0.85B --checkout FOLDER --out FILE
Its own decode loop (`decode_n_tokens`) runs with `decode_one_token` compiled as its `generate.py --compile` does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.gpu_race import READ_BYTES_PER_S, SHAPES, Shape

PROMPT, ANSWER = 128, 256


def build(model_module: Any, shape: Shape) -> Any:
    """Its Transformer with random weights on the GPU."""
    arguments = model_module.ModelArgs(
        block_size=2048,
        vocab_size=shape.vocab,
        n_layer=shape.layers,
        n_head=shape.heads,
        n_local_heads=shape.kv_heads,
        dim=shape.hidden,
        intermediate_size=shape.ff,
    )
    with torch.device("cuda"):
        model = model_module.Transformer(arguments).to(torch.bfloat16).eval()
        model.setup_caches(max_batch_size=1, max_seq_length=PROMPT + ANSWER)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.02)
    return model


@torch.no_grad()
def seconds_per_token(generate_module: Any, model: Any) -> list[float]:
    """Time of a decode step in three runs, after one that compiles and one that warms up."""
    generate_module.decode_one_token = torch.compile(
        generate_module.decode_one_token, mode="reduce-overhead", fullgraph=True
    )
    seconds = []
    for _ in range(5):
        token = torch.zeros(1, 1, dtype=torch.int, device="cuda")
        position = torch.tensor([PROMPT], device="cuda", dtype=torch.int)
        torch.cuda.synchronize()
        started = time.perf_counter()
        generate_module.decode_n_tokens(model, token, position, ANSWER - 1, temperature=0.8, top_k=200)
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - started) / (ANSWER - 1))
    return seconds[2:]


def main() -> None:
    """Parse, run, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SHAPES, default="0.85B")
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.checkout))
    generate_module, model_module = (importlib.import_module(name) for name in ("generate", "model"))
    shape = SHAPES[arguments.size]
    started = time.perf_counter()
    gaps = seconds_per_token(generate_module, build(model_module, shape))
    best = statistics.median(gaps)
    share = shape.parameters * 2 / READ_BYTES_PER_S / best
    results = {"batch 1": {"seconds_per_token": gaps, "tokens_per_s": 1 / best, "share_of_read_limit": share}}
    about = {"size": arguments.size, "parameters": shape.parameters, "who": "gpt-fast", "torch": torch.__version__}
    arguments.out.write_text(json.dumps({"about": about, "results": results}, indent=1), encoding="utf-8")
    print(
        f"gpt-fast {1 / best:.1f} tok/s, {share:.1%} of the read limit, all after {time.perf_counter() - started:.1f} s"
    )


if __name__ == "__main__":
    main()
