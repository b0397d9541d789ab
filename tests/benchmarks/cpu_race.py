"""The engine against `generate` of transformers on the CPU: the same model, the same 64 requests, turn by turn.

Usage: python -m tests.benchmarks.cpu_race [--dtype bfloat16] [--threads 2] [--rounds 3] [--out FILE]

The model is a random Llama of 45.4 M parameters, made in a temporary folder. The requests have 16 to 256 prompt tokens
and 16 to 128 answer tokens (9,109 and 4,228 in all), greedy, the end of sequence ignored. transformers runs them as one
left-padded batch, the engine by continuous batching without prefix reuse. Figures are output tokens over the wall time
of the whole job, prompts included, and over the process's CPU time: cores that are shared with others spoil the former.
Both run in one process, in turn (engine, transformers, engine, ...), after one job each that is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from engine import LLM, SamplingParams
from engine.benchmark import Workload

VOCAB = 32000
Requests = list[tuple[tuple[int, ...], int]]


def make_checkpoint(folder: Path, dtype: torch.dtype) -> None:
    """A random Llama, wide enough that two tokens rarely score the same."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=2048,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model: Any = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.normal_(0, 0.05)
    model.to(dtype).save_pretrained(folder)


def engine_job(folder: Path, dtype: str) -> Callable[[Requests], list[list[int]]]:
    """Runs requests through the engine."""
    llm = LLM(str(folder), device="cpu", dtype=dtype, max_model_len=512, prefix_caching=False)

    def run(requests: Requests) -> list[list[int]]:
        params = [SamplingParams(temperature=0, max_new_tokens=length, ignore_eos=True) for _, length in requests]
        answers = llm.generate([prompt for prompt, _ in requests], params)
        return [list(answer.token_ids) for answer in answers]

    return run


def transformers_job(folder: Path, dtype: torch.dtype) -> Callable[[Requests], list[list[int]]]:
    """Runs requests as one padded batch of transformers."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.eval()

    def run(requests: Requests) -> list[list[int]]:
        longest = max(len(prompt) for prompt, _ in requests)
        ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt, _ in requests])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _ in requests])
        out = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=max(length for _, length in requests),
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        return [out[row, longest : longest + length].tolist() for row, (_, length) in enumerate(requests)]

    return run


def race(dtype: str, rounds: int) -> dict[str, Any]:
    """Run both in turn."""
    requests: Requests = Workload().prompts(VOCAB)
    num_output = sum(length for _, length in requests)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_checkpoint(folder, getattr(torch, dtype))
        jobs = {"engine": engine_job(folder, dtype), "transformers": transformers_job(folder, getattr(torch, dtype))}
        for job in jobs.values():
            job(requests[:2])
        answers: dict[str, list[list[int]]] = {}
        rates: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in jobs}
        for number in range(rounds):
            for name, job in jobs.items():
                wall_s, cpu_s = time.perf_counter(), time.process_time()
                answers[name] = job(requests)
                rates[name]["wall"].append(num_output / (time.perf_counter() - wall_s))
                rates[name]["cpu"].append(num_output / (time.process_time() - cpu_s))
                print(number, name, {key: round(values[-1], 1) for key, values in rates[name].items()}, flush=True)
    same = sum(a == b for a, b in zip(answers["engine"], answers["transformers"], strict=True))
    ratios = {
        key: [a / b for a, b in zip(rates["engine"][key], rates["transformers"][key], strict=True)]
        for key in ("wall", "cpu")
    }
    return {
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "prompt_tokens": sum(len(prompt) for prompt, _ in requests),
        "output_tokens": num_output,
        "output_tokens_per_s": rates,
        "ratio_engine_to_transformers": {key: statistics.median(values) for key, values in ratios.items()},
        "equal_answers": same,
    }


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    result = race(arguments.dtype, arguments.rounds)
    print(json.dumps(result))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
