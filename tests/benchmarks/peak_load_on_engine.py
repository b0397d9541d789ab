"""The peak-load claim on the real engine: a small model, requests that arrive in real time, each strategy in turn.

Usage: python -m tests.benchmarks.peak_load_on_engine [--seeds 0 1] [--requests 300] [--out FILE]
The arrival rate is set from the capacity measured at the start: 0.6 times it outside the peak, 1.8 times inside. People
who wait for short answers share the engine with jobs of long ones. An answer ends when it has the length drawn for it,
as a stop string would end it; the scheduler knows only the limit. Wall time, so a busy machine blurs the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import deque
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from engine import LLM, SamplingParams
from engine.scheduling.arrivals import Arrival, PeakLoad
from engine.scheduling.peak_load import PeakLoadRow, summarise
from engine.scheduling.request import FinishReason
from engine.scheduling.simulation import Served, SimulationResult
from tests.support.tiny_models import make_model, save_model

VOCAB_SIZE = 2000
LOAD = PeakLoad(
    batch_share=0.2,
    prefix_tokens=0,
    interactive_prompt=(16, 64),
    interactive_output=(8, 32),
    interactive_limit=96,
    batch_prompt=(100, 300),
    batch_output=(64, 192),
    batch_limit=256,
    slack_per_token_s=0.05,
    peak_factor=3.0,
)
OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "max_model_len": 640,
    "num_blocks": 220,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 256,
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "fcfs, static batches": {"batching": "static", "admission": "full-length"},
    "fcfs, full length reserved": {"admission": "full-length"},
    "fcfs, blocks free now": {"admission": "free-blocks"},
    "fcfs, projected peak": {},
    "deadline, projected peak": {"policy": "deadline"},
}


def main() -> None:
    """Print one line per strategy and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[int, dict[str, Any]] = {}
    with TemporaryDirectory() as folder:
        save_model(make_model("llama", vocab_size=VOCAB_SIZE, max_position_embeddings=1024), Path(folder))
        load = scaled(folder, replace(LOAD, num_requests=options.requests))
        for seed in options.seeds:
            arrivals = load.draw(seed)
            rows = [measure(folder, name, arrivals, load) for name in STRATEGIES]
            results[seed] = {"load_average": os.getloadavg()[0], "rows": [asdict(row) for row in rows]}
    if options.out is not None:
        document = {"schema": "engine.peak_load/1", "engine": OPTIONS, "load": asdict(load), "seeds": results}
        options.out.write_text(json.dumps(document, indent=1) + "\n")


def scaled(folder: str, load: PeakLoad) -> PeakLoad:
    """The load at 0.6 times the rate at which the engine answers requests that are all there from the start."""
    arrivals = [replace(arrival, at_us=0) for arrival in load.draw(seed=99)[:100]]
    result = serve(LLM(folder, **OPTIONS), arrivals)
    capacity = len(arrivals) * 1_000_000 / result.progress[-1][0]
    step_s = result.progress[-1][0] / 1_000_000 / result.steps
    print(f"capacity {capacity:.1f} requests/s, {step_s * 1000:.1f} ms a step, load average {os.getloadavg()[0]:.1f}")
    # Alone, an answer takes a step per token: people are promised three times that.
    return replace(load, rate_per_s=0.6 * capacity, slack_s=40 * step_s, slack_per_token_s=3 * step_s)


def measure(folder: str, name: str, arrivals: list[Arrival], load: PeakLoad) -> PeakLoadRow:
    """Serve the arrivals with a fresh engine and print what came of it."""
    llm = LLM(folder, **OPTIONS, **STRATEGIES[name])
    llm.generate([[5, 6, 7]], SamplingParams(max_new_tokens=4, ignore_eos=True))
    row = summarise(name, serve(llm, arrivals), load.peak_us(arrivals))
    print(
        f"  {name:<28} {row.output_tokens_per_s:6.0f} tok/s in the peak, {row.overall_tokens_per_s:6.0f} overall;"
        f" P99 latency interactive {row.interactive_latency_us / 1e6:5.2f} s, all {row.latency_us / 1e6:5.2f} s;"
        f" P99 TTFT {row.interactive_ttft_us / 1e6:5.2f} s; in time {row.in_time_share:.0%};"
        f" preempted {row.preemptions}",
        flush=True,
    )
    return row


def serve(llm: LLM, arrivals: list[Arrival]) -> SimulationResult:
    """Submit each request when its time has come, and turn the engine until all are answered."""
    served = [Served(arrival) for arrival in arrivals]
    coming, answering, progress = deque(served), dict[int, Served](), list[tuple[int, int]]()
    lengths: dict[int, int] = {}
    counters, start_s, random = llm.core.loop.scheduler.counters, time.monotonic(), Random(0)
    while coming or not llm.core.is_idle:
        now_us = round((time.monotonic() - start_s) * 1_000_000)
        while coming and coming[0].arrival.at_us <= now_us:
            request_id = submit(llm, coming[0].arrival, start_s, random)
            answering[request_id], lengths[request_id] = coming.popleft(), 0
        if llm.core.is_idle:
            time.sleep((coming[0].arrival.at_us - now_us) / 1_000_000)
            continue
        updates = llm.core.step()
        now_us = round((time.monotonic() - start_s) * 1_000_000)
        progress.append((now_us, sum(len(update.token_ids) for update in updates)))
        for update in updates:
            lengths[update.request_id] += len(update.token_ids)
            note(llm, answering[update.request_id], update.request_id, lengths[update.request_id], now_us)
    return SimulationResult(
        served=tuple(served),
        progress=tuple(progress),
        preemptions=counters.preemptions,
        prefix_hit_tokens=counters.prefix_hit_tokens,
        scheduled_tokens=counters.scheduled_tokens,
        steps=counters.steps,
        peak_blocks=(llm.core.loop.scheduler.tables.device.peak_used,),
    )


def submit(llm: LLM, arrival: Arrival, start_s: float, random: Random) -> int:
    """Hand one arrival to the engine; its deadline is on the engine's clock."""
    prompt = [random.randrange(3, VOCAB_SIZE) for _ in range(arrival.prompt_tokens)]
    params = SamplingParams(temperature=0, max_new_tokens=arrival.max_new_tokens, ignore_eos=True)
    deadline_s = None if arrival.deadline_us is None else start_s + arrival.deadline_us / 1_000_000
    return llm.core.submit(prompt, params, deadline_s)


def note(llm: LLM, served: Served, request_id: int, length: int, now_us: int) -> None:
    """Write down the first token, and end an answer that is as long as it was drawn."""
    if served.first_token_us is None:
        served.first_token_us = now_us
    if length >= served.arrival.output_tokens and served.finished_us is None:
        served.finished_us = now_us
        llm.core.loop.finish(request_id, FinishReason.STOP)


if __name__ == "__main__":
    main()
