"""What inference engines print, rebuilt line by line in their own formats with the figures a test gives."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

START = datetime(2026, 9, 13, 16, 0, 0)

NON_DEFAULT = "(APIServer pid=1) INFO 09-13 15:58:01 [utils.py:233] non-default args: {}"
SERVING = "(APIServer pid=1) INFO:     Application startup complete."


def vllm_status(
    second: float,
    running: int,
    waiting: int = 0,
    kv: float = 20.0,
    *,
    engine: int = 0,
    hits: float = 0.0,
    preemptions: int = 0,
    prompt: float = 900.0,
    output: float = 400.0,
) -> str:
    """A status line of vLLM V1; `kv` and `hits` in percent."""
    lost = f"Preemptions: {preemptions}, " if preemptions else ""
    return (
        f"(APIServer pid=1) INFO {_at(second, '%m-%d %H:%M:%S')} [loggers.py:248] Engine {engine:03d}: "
        f"Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {output:.1f} tokens/s, "
        f"Running: {running} reqs, Waiting: {waiting} reqs, {lost}GPU KV cache usage: {kv:.1f}%, "
        f"Prefix cache hit rate: {hits:.1f}%"
    )


def vllm_v0_status(second: float, running: int, pending: int = 0, kv: float = 20.0) -> str:
    """A status line of vLLM V0."""
    return (
        f"INFO {_at(second, '%m-%d %H:%M:%S')} metrics.py:345] Avg prompt throughput: 512.0 tokens/s, Avg "
        "generation throughput: "
        f"210.3 tokens/s, Running: {running} reqs, Swapped: 0 reqs, Pending: {pending} reqs, GPU KV cache usage: "
        f"{kv:.1f}%, "
        "CPU KV cache usage: 0.0%."
    )


def vllm_speculation(second: float, length: float, drafted: int, accepted: int, positions: int) -> str:
    """The line about speculation that vLLM V1 prints behind a status line."""
    rates = ", ".join(["0.100"] * positions)
    return (
        f"(APIServer pid=1) INFO {_at(second, '%m-%d %H:%M:%S')} [metrics.py:96] SpecDecoding metrics: Mean "
        "acceptance length: "
        f"{length:.2f}, Accepted throughput: 12.00 tokens/s, Drafted throughput: 90.00 tokens/s, Accepted: "
        f"{accepted} tokens, "
        f"Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 3.7%"
    )


def vllm_arguments(**settings: object) -> str:
    """The line with all arguments that are not the default."""
    return NON_DEFAULT.format({"host": "0.0.0.0", "model": "org/name", "api_key": ["secret"], **settings})


def sglang_decode(
    second: float,
    running: int,
    queue: int = 0,
    usage: float = 0.3,
    *,
    graph: bool = True,
    rate: float = 900.0,
    rank: str = "TP0",
) -> str:
    """A decode line of SGLang."""
    return (
        f"[{_at(second, '%Y-%m-%d %H:%M:%S')} {rank}] Decode batch, #running-req: {running}, #token: {running * 700}, "
        f"token usage: {usage:.2f}, cuda graph: {graph}, gen throughput (token/s): {rate:.2f}, #queue-req: {queue}"
    )


def sglang_prefill(
    second: float, new_tokens: int, running: int, queue: int = 0, cached: int = 0, sequences: int = 8
) -> str:
    """A prefill line of SGLang."""
    return (
        f"[{_at(second, '%Y-%m-%d %H:%M:%S')} TP0] Prefill batch, #new-seq: {sequences}, #new-token: {new_tokens}, "
        "#cached-token: "
        f"{cached}, token usage: 0.41, #running-req: {running}, #queue-req: {queue}, cuda graph: False, "
        "input throughput (token/s): 9000.00"
    )


def sglang_retracted(second: float, requests: int = 1) -> str:
    """The line about requests that lost their blocks."""
    return (
        f"[{_at(second, '%Y-%m-%d %H:%M:%S')} TP0] KV cache pool is full. Retract requests. #retracted_reqs: "
        f"{requests}, "
        "#new_tokens_gained: 646, #new_token_ratio: 0.0980 -> 0.3487"
    )


def sglang_arguments(**settings: object) -> str:
    """The line with all of SGLang's arguments."""
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    private = "model_path='/models/private', host='10.1.2.3', port=30000"
    return f"[2026-09-13 15:58:01] server_args=ServerArgs({private}, {given})"


def tensorrt_iteration(
    iteration: int,
    scheduled: int,
    host_ms: float,
    device_ms: float,
    *,
    prompt_tokens: int = 0,
    active: int | None = None,
    kv: float = 0.2,
) -> str:
    """A line of TensorRT-LLM's PyTorch backend, one an iteration."""
    return (
        f"[09/13/2026-{_at(iteration / 20, '%H:%M:%S')}] [TRT-LLM] [I] [_torch][RANK 0] iter = {iteration}, "
        "global_rank = 0, rank = 0, "
        f"num_scheduled_requests = {scheduled}, kv_cache_util = {kv:.3f}, currank_total_requests = "
        f"{active or scheduled}/512, "
        f"host_step_time = {host_ms}ms, prev_device_step_time = {device_ms}ms, timestamp = 2026-09-13 16:00:00, "
        f"states = {{'num_ctx_requests': {int(prompt_tokens > 0)}, 'num_ctx_tokens': {prompt_tokens}, "
        f"'num_generation_tokens': {scheduled}, 'cached_kv_tokens': 0}}"
    )


def lines(*pieces: str | Iterable[str]) -> str:
    """One text of lines and groups of lines."""
    flat = (line for piece in pieces for line in ((piece,) if isinstance(piece, str) else piece))
    return "\n".join(flat) + "\n"


def _at(second: float, form: str) -> str:
    return (START + timedelta(seconds=second)).strftime(form)
