"""Runs out of device memory in one known way, and keeps what a user would have: the text and a memory snapshot.

Usage: `python samples/out_of_memory.py CASE FOLDER`; CASE is one of `CASES`. Needs a GPU that is otherwise free.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

torch: Any = importlib.import_module("torch")

GIB = 2**30
LAYERS, KV_HEADS, HEAD_DIM = 16, 8, 128
TOKENS_RESERVED, TOKENS_USED = 65_536, 600


def load_weights(size_gib: float) -> list[Any]:
    """Weights in pieces of 256 MiB."""
    return [torch.empty(256 << 20, dtype=torch.uint8, device="cuda") for _ in range(int(size_gib * 4))]


def reserve_kv(tokens: int) -> list[Any]:
    """Keys and values of one request in all layers, bf16, in one piece a layer."""
    return [torch.empty(2, KV_HEADS, tokens, HEAD_DIM, dtype=torch.bfloat16, device="cuda") for _ in range(LAYERS)]


def serve_requests(tokens: int, count: int) -> list[Any]:
    """Admit requests; each keeps its cache."""
    return [reserve_kv(tokens) for _ in range(count)]


def full_length_kv() -> object:
    """Every request reserves 65,536 tokens of KV and uses 600 of them."""
    weights = load_weights(14)
    return weights, serve_requests(TOKENS_RESERVED, 64)


def fragmented_pool() -> object:
    """Small results that live on sit in large blocks whose other parts are free: no block is large enough."""
    total = torch.cuda.get_device_properties(0).total_memory
    kept = []
    chunks = [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(int(total * 0.9) // GIB)]
    while chunks:  # each block is freed, and more than half of it taken, so that the rest of none is used again
        del chunks[-1]
        kept.append(torch.empty(600 << 20, dtype=torch.uint8, device="cuda"))
    return kept, torch.empty(24 * GIB, dtype=torch.uint8, device="cuda")


def foreign_process() -> object:
    """Another process holds all but 12 GiB of the device."""
    total = torch.cuda.mem_get_info()[1]
    holder = subprocess.Popen(
        [sys.executable, __file__, "hold", str(total - 12 * GIB)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        keep_nvidia_smi(Path(sys.argv[2]))
        return load_weights(16)
    finally:
        holder.kill()


def logits_of_a_long_prompt() -> object:
    """Logits and log-probabilities of 100,000 prompt tokens over a vocabulary of 151,936, in fp32."""
    weights = load_weights(14)
    hidden = torch.zeros(100_000, 1024, dtype=torch.bfloat16, device="cuda")
    head = torch.zeros(1024, 151_936, dtype=torch.bfloat16, device="cuda")
    return weights, compute_logprobs(hidden @ head)


def compute_logprobs(logits_TV: Any) -> Any:
    """Log-probabilities in fp32."""
    return torch.log_softmax(logits_TV.float(), dim=-1)


CASES: dict[str, Callable[[], object]] = {
    "oom-full-length-kv": full_length_kv,
    "oom-fragmentation": fragmented_pool,
    "oom-foreign-process": foreign_process,
    "oom-logits-peak": logits_of_a_long_prompt,
}


def keep_nvidia_smi(folder: Path) -> None:
    """What `nvidia-smi` shows now; programs by their base names."""
    table = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False).stdout  # noqa: S607 - on the PATH
    (folder / "nvidia-smi.txt").write_text(re.sub(r"/\S+/(\S+)", r"\1", table), encoding="utf-8")


def keep_snapshot(folder: Path) -> None:
    """The allocator's state; files of stacks by their base names."""
    snapshot = torch.cuda.memory._snapshot()
    for frame in _frames(snapshot):
        frame["filename"] = os.path.basename(frame["filename"])  # noqa: PTH119 - a text, not a file
    with (folder / "snapshot.pickle").open("wb") as target:
        pickle.dump(snapshot, target)


def _frames(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, dict):
        own = [node] if isinstance(node.get("filename"), str) else []
        return own + [frame for value in node.values() for frame in _frames(value)]
    if isinstance(node, list | tuple):
        return [frame for value in node for frame in _frames(value)]
    return []


def main(case: str, argument: str) -> None:
    """Run one case, or hold memory until killed."""
    if case == "hold":
        held = torch.empty(int(argument), dtype=torch.uint8, device="cuda")
        sys.stdout.write(f"{held.numel()}\n")
        sys.stdout.flush()
        sys.stdin.read()
        return
    folder = Path(argument)
    folder.mkdir(parents=True, exist_ok=True)
    torch.cuda.memory._record_memory_history(max_entries=2000, stacks="python")
    try:
        CASES[case]()
    except torch.OutOfMemoryError:
        text = re.sub(r'File "[^"]*/([^/"]+)"', r'File "\1"', traceback.format_exc())
        (folder / "error.txt").write_text(text, encoding="utf-8")
        if case != "oom-foreign-process":
            keep_snapshot(folder)
    if case == "oom-full-length-kv":
        torch.cuda.empty_cache()
        fits = serve_requests(TOKENS_USED, 64)
        (folder / "cured.json").write_text(
            json.dumps({"requests": len(fits), "kv_bytes": torch.cuda.memory_allocated()}), encoding="utf-8"
        )


if __name__ == "__main__":
    main(*sys.argv[1:3])
