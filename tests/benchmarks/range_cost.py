"""What the ranges of the engine cost while no profiler listens, as a share of a decode step on the CPU.

Usage: python -m tests.benchmarks.range_cost --model FOLDER
The cost of one range is timed by itself, many times over; how many a step opens is counted with the profiler of torch.
Taking the difference of two runs instead would drown it in the noise of the machine.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from engine import LLM, SamplingParams
from engine.tracing import Range, is_listening, span

NUM_SPANS = 1_000_000
STEPS = 40


def nanoseconds_per_range() -> float:
    """CPU time to enter and leave one silent range, less that of the loop around it."""
    assert not is_listening()
    started = time.process_time_ns()
    for _ in range(NUM_SPANS):
        with span(Range.LAYER, 3):
            pass
    with_ranges = time.process_time_ns() - started
    started = time.process_time_ns()
    for _ in range(NUM_SPANS):
        pass
    return (with_ranges - (time.process_time_ns() - started)) / NUM_SPANS


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    llm = LLM(arguments.model, device="cpu", max_model_len=256)
    params = SamplingParams(temperature=0, max_new_tokens=STEPS, ignore_eos=True)
    llm.generate([[5, 6, 7]], params)
    started = time.process_time_ns()
    llm.generate([[5, 6, 7]], params)
    step_ns = (time.process_time_ns() - started) / STEPS
    with torch.profiler.profile() as profile:
        llm.generate([[5, 6, 7]], params)
    names = {name.value for name in Range}
    ranges = sum(event.count for event in profile.key_averages() if event.key in names) / STEPS
    range_ns = nanoseconds_per_range()
    result = {
        "ns_per_range": range_ns,
        "ranges_per_step": ranges,
        "step_us": step_ns / 1000,
        "share_of_step": range_ns * ranges / step_ns,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
