"""CUDA graphs of steps that feed prompts beside decodes, against the same steps launched one by one. Needs a GPU.

Usage: python -m tests.benchmarks.gpu_mixed_steps --size 0.85B --folder /tmp/m085 --out FILE

    steps      32 decodes and prompts of up to 512 tokens, T tokens together: seconds of a step that the host waits
               for, and the largest difference of logits
    at once    64 prompts of 16 to 256 tokens behind 64 common ones, 16 to 128 of answer, all at once
    pieces     48 prompts of 1500 to 3000 tokens, 40 a second, 32 to 64 of answer; whole prompts and pieces of them
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from engine import LLM, EngineConfig
from engine.benchmark import TimedRequest, Workload, measure, timed_requests
from engine.execution.cuda_graphs import DecodeGraphs
from engine.execution.forward import ForwardPass
from engine.execution.mixed_graphs import MixedGraphs
from engine.scheduling.plan import ScheduledRequest
from tests.benchmarks.gpu_race import SHAPES, make_checkpoint

CAPTURED = 2048
NUM_DECODES = 32
PROMPT_TOKENS = 512
STEP_TOKENS = (64, 128, 256, 512, 768, 1024, 1100, 1536, 2048)
AT_ONCE = Workload(64, (16, 256), (16, 128), shared_tokens=64)
PIECES = Workload(48, (1500, 3000), (32, 64), requests_per_s=40)
COUNTED = ("steps", "pieces", "graph_replays", "mixed_graph_replays", "graph_padding_tokens", "graph_captures", "syncs")


def build(folder: Path, captured: int, **options: Any) -> tuple[LLM, float]:
    """An engine and the seconds that it took to build."""
    gc.collect()
    torch.cuda.empty_cache()
    started_s = time.perf_counter()
    llm = LLM.from_config(EngineConfig(str(folder), max_cudagraph_capture_size=captured, **options))
    return llm, time.perf_counter() - started_s


def step_of(num_tokens: int) -> tuple[list[ScheduledRequest], list[int]]:
    """Decodes behind 200 tokens, and prompts of up to 512 tokens; all blocks apart, of 16 tokens."""
    columns = 13
    scheduled = [
        ScheduledRequest(row, 200, 1, tuple(range(row * columns, (row + 1) * columns)), (5 + row,), (), samples=True)
        for row in range(NUM_DECODES)
    ]
    first = NUM_DECODES * columns
    for start in range(NUM_DECODES, num_tokens, PROMPT_TOKENS):
        length = min(PROMPT_TOKENS, num_tokens - start)
        blocks = tuple(range(first, first + -(-length // 16)))
        prompt = tuple(3 + (start + i) % 900 for i in range(length))
        scheduled.append(ScheduledRequest(len(scheduled), 0, length, blocks, prompt, (), True))
        first += len(blocks)
    return scheduled, list(range(len(scheduled)))


def seconds_of(forward: ForwardPass, scheduled: list[ScheduledRequest], slots: list[int], repeats: int = 9) -> float:
    """Median seconds from the call to the end of the device's work."""
    samples = []
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        started_s = time.perf_counter()
        forward.run(scheduled, slots)
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - started_s)
    return statistics.median(samples[2:])


@torch.inference_mode()
def measure_steps(llm: LLM) -> list[dict[str, float]]:
    """Each size of step, launched one by one and replayed."""
    decode = llm.core.loop._runner._forward
    assert isinstance(decode, DecodeGraphs)
    mixed = decode._others
    assert isinstance(mixed, MixedGraphs)
    rows = []
    for num_tokens in STEP_TOKENS:
        scheduled, slots = step_of(num_tokens)
        eager_logits = mixed._eager.run(scheduled, slots).logits_RV.float()
        graph_logits = mixed.run(scheduled, slots).logits_RV.float()
        rows.append(
            {
                "tokens": num_tokens,
                "eager_ms": 1e3 * seconds_of(mixed._eager, scheduled, slots),
                "graph_ms": 1e3 * seconds_of(mixed, scheduled, slots),
                "logits_std": float(eager_logits.std()),
                "largest_difference": float((graph_logits - eager_logits).abs().max()),
                "equal_choices": float((graph_logits.argmax(-1) == eager_logits.argmax(-1)).float().mean()),
            }
        )
        print({name: f"{value:.4g}" for name, value in rows[-1].items()}, flush=True)
    return rows


def measure_runs(llm: LLM, requests: list[TimedRequest], repeats: int) -> dict[str, Any]:
    """Rates and latencies of some runs, each with an empty prefix cache; counters of the last."""
    runs = [measure(llm, requests) for _ in range(repeats)]
    numbers = [run.as_json() for run in runs]
    last = numbers[-1]
    return {
        "tokens_per_s": [one["output_tokens_per_s"] for one in numbers],
        "median_tokens_per_s": statistics.median(one["output_tokens_per_s"] for one in numbers),
        "ttft_p50_ms": statistics.median(1e3 * one["ttft_s"]["p50"] for one in numbers),
        "itl_p50_ms": statistics.median(1e3 * one["itl_s"]["p50"] for one in numbers),
        "itl_p99_ms": statistics.median(1e3 * one["itl_s"]["p99"] for one in numbers),
        "graph_bytes": last["graph_bytes"],
        "peak_memory_bytes": last["peak_memory_bytes"],
        "counters": {name: last["counters"][name] for name in COUNTED},
        "answers": [answer.token_ids for answer in runs[-1].answers],
    }


def equal_share(some: dict[str, Any], others: dict[str, Any]) -> float:
    """Answers that are equal, token for token; takes the answers out."""
    pairs = [a == b for a, b in zip(some.pop("answers"), others.pop("answers"), strict=True)]
    return pairs.count(True) / len(pairs)


def configurations() -> list[tuple[str, Workload, dict[str, Any]]]:
    """What is run with and without graphs of mixed steps, most wanted first."""
    short: dict[str, Any] = {"max_model_len": 1024}
    long: dict[str, Any] = {"max_model_len": 4096, "num_blocks": 16000, "max_num_seqs": 16, "prefix_caching": False}
    return [
        ("at once, continuous", AT_ONCE, {**short, "batching": "continuous"}),
        ("at once, dynamic", AT_ONCE, {**short, "batching": "dynamic"}),
        ("pieces of 256", PIECES, {**long, "max_num_batched_tokens": 256}),
        ("whole prompts", PIECES, {**long, "max_num_batched_tokens": 65536}),
        ("pieces of 512", PIECES, {**long, "max_num_batched_tokens": 512}),
        ("at once, n-gram", AT_ONCE, {**short, "speculate": "ngram", "overlap": False}),
        ("pieces of 2048", PIECES, {**long, "max_num_batched_tokens": 2048}),
    ]


def main() -> None:
    """Measure, print and write what there is after each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SHAPES, default="0.85B")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=2.0, help="no further configuration is begun after so long")
    arguments = parser.parse_args()
    ends_s = time.monotonic() + 60 * arguments.minutes
    make_checkpoint(SHAPES[arguments.size], arguments.folder)
    results: dict[str, Any] = {"size": arguments.size, "device": torch.cuda.get_device_name(), "runs": {}}

    def save() -> None:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    for name, workload, options in configurations():
        if time.monotonic() > ends_s:
            print("no time for", name, flush=True)
            continue
        found: dict[str, Any] = {}
        for captured in (0, CAPTURED):
            llm, build_s = build(arguments.folder, captured, **options)
            if captured and "steps" not in results:
                results["steps"] = measure_steps(llm)
            requests = timed_requests(workload, llm.core.vocabulary.size)
            found[str(captured)] = {"build_s": build_s, **measure_runs(llm, requests, 5 if workload is AT_ONCE else 2)}
            del llm
        found["equal_answers"] = equal_share(found["0"], found[str(CAPTURED)])
        results["runs"][name] = found
        save()
        for size in ("0", str(CAPTURED)):
            shown = {key: round(value, 2) for key, value in found[size].items() if isinstance(value, float | int)}
            print(name, size, shown, found[size]["counters"], f"equal {found['equal_answers']:.2f}", flush=True)


if __name__ == "__main__":
    main()
