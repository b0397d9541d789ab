"""Lines of TensorRT-LLM, from 0.9 to 1.2: of the C++ runtime and of the PyTorch backend."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from doctor.formats.engine_options import pairs, settings_of
from doctor.readers.text.engine_lines import GIB, Kind, Row, event, figure, number, said, sample, setting, size_bytes
from doctor.readers.text.stamp import Stamp

ENGINE = "tensorrt-llm"
MOST_OBJECTS = 2000
MOST_COUNT = 1e15

_VERSION = re.compile(r"TensorRT-LLM version: ([\w.+\-]{1,40})")
_POLICY = re.compile(
    r"^[\s\"'-]{0,40}(?:capacity_scheduler_policy|batch_scheduler_policy)[\"']?\s?[:=]\s?[\"']?([A-Za-z_]{4,40})"
)
_SCHEDULED = re.compile(r"num_scheduled_requests(?: =|:) ?(\d+)")
_ACTIVE = re.compile(r"currank_total_requests = (\d+)/(\d+)")
_HOST = re.compile(r"host_step_time = ([\d.]+) ?ms")
_ELAPSED = re.compile(r"elapsed_time = ([\d.]+)s")
_DEVICE = re.compile(r"prev_device_step_time = ([\d.]+) ?ms")
_USAGE = re.compile(r"kv_cache_util = ([\d.]+)")
_PROMPTS = re.compile(r"'num_ctx_requests': (\d+)")
_PROMPT_TOKENS = re.compile(r"'num_ctx_tokens': (\d+)")
_DECODE_TOKENS = re.compile(r"'num_generation_tokens': (\d+)")
_HITS = re.compile(r"kv_hit_rate = ([\d.]+)")
_PAGED = re.compile(r"Allocated ([\d.]+) (GiB|MiB) for max tokens in paged KV cache \((\d+)\)")
_PROFILED = re.compile(
    r"Peak memory during memory usage profiling[^:]{0,40}: (-?[\d.]+) GiB, available KV cache memory[^:]{0,60}: "
    r"(-?[\d.]+) GiB, fraction is set ([\d.]+)"
)
_TOTAL = re.compile(r"device total memory ([\d.]+) GiB")
_ENGINE_SIZE = re.compile(r"Loaded engine size: (\d+) (MiB|GiB)")
_BLOCK = re.compile(r"Number of tokens per block: (\d+)")
_BLOCKS = re.compile(r"[Bb]locks in KV cache(?: primary pool)?: (\d+)")
_MAXIMA = re.compile(r"max_seq_len=(\d+), max_num_requests=(\d+), max_num_tokens=(\d+)")
_GIVEN = re.compile(r"(?:LLM Args|engine args|LlmArgs|PyTorchConfig|llm_args)[^({]{0,20}[:= ](?=[({])")
_STATISTICS = re.compile(r"\"([A-Za-z ()/]{3,60})\" ?: ?(-?[\d.]+)")
_PAUSED = re.compile(r"(?<!\d)(\d{1,9}) (?:requests? )?paused|[Pp]aus(?:ing|ed) (\d+) requests?")


def _iteration(text: str, at: Stamp) -> Iterable[Row]:
    """One line an iteration; the waiting ones are those of the rank that are active and not scheduled."""
    scheduled, active = _number(_SCHEDULED, text), _ACTIVE.search(text)
    prompts, prompt_tokens = _number(_PROMPTS, text), _number(_PROMPT_TOKENS, text)
    decoding = _number(_DECODE_TOKENS, text)
    if scheduled is None and decoding is None:
        return
    host, device, elapsed = _number(_HOST, text), _number(_DEVICE, text), _number(_ELAPSED, text)
    if host is None and elapsed is not None:  # before 1.0 there is one time
        host = elapsed * 1e3
    waiting = None if active is None else (number(active[1]) or 0.0) - (scheduled or 0.0)
    yield sample(
        ENGINE,
        at,
        "prefill" if prompt_tokens else "decode",
        running_count=scheduled if scheduled is not None else decoding,
        waiting_count=None if waiting is None or waiting < 0 else waiting,  # 0/0: a version that does not count them
        kv_usage_share=_number(_USAGE, text),
        prefix_hit_share=_number(_HITS, text),
        new_sequence_count=prompts,
        new_token_count=prompt_tokens,
        step_ns=None if host is None else round(host * 1e6),
        device_step_ns=None if device is None else round(device * 1e6),
    )


def _statistics(text: str, at: Stamp) -> Iterable[Row]:
    """Statistics of the C++ batch manager: one JSON object an iteration."""
    values = {name: number(value) for name, value in _STATISTICS.findall(text)}
    if "Active Request Count" not in values:
        return
    used, most = values.get("Used KV cache blocks"), values.get("Max KV cache blocks")
    yield sample(
        ENGINE,
        at,
        "state",
        running_count=values.get("Scheduled Requests per Iteration", values.get("Scheduled Requests")),
        waiting_count=_waiting(values),
        kv_usage_share=None if used is None or not most else used / most,
        new_token_count=values.get("Total Context Tokens"),
        preemption_count=values.get("Paused Requests"),
    )


def _waiting(values: dict[str, float | None]) -> float | None:
    scheduled = values.get("Scheduled Requests per Iteration", values.get("Scheduled Requests"))
    active = values.get("Active Request Count")
    return None if active is None or scheduled is None else max(active - scheduled, 0.0)


def _iteration_objects(text: str, at: Stamp) -> Iterable[Row]:
    """What `trtllm-serve` answers at /metrics: a JSON object an iteration, several on a line or one."""
    for stats in _objects(text):
        batching, cache = stats.get("inflightBatchingStats"), stats.get("kvCacheStats")
        if not isinstance(cache, dict) and not isinstance(batching, dict):
            continue
        inside = {**(cache if isinstance(cache, dict) else {}), **(batching if isinstance(batching, dict) else {})}
        count = {name: float(value) for name, value in {**stats, **inside}.items() if _is_count(value)}
        used, most, step = count.get("usedNumBlocks"), count.get("maxNumBlocks"), count.get("iterLatencyMS")
        yield sample(
            ENGINE,
            at,
            "state",
            running_count=count.get("numScheduledRequests", count.get("numActiveRequests")),
            waiting_count=count.get("numQueuedRequests"),
            kv_usage_share=None if used is None or not most else used / most,
            prefix_hit_share=count.get("cacheHitRate"),
            new_token_count=count.get("numCtxTokens"),
            preemption_count=count.get("numPausedRequests"),
            step_ns=None if step is None else step * 1e6,
        )


def _objects(text: str) -> Iterable[dict[str, Any]]:
    """The objects of a line one after the other, up to one that is cut or broken."""
    decoder, place = json.JSONDecoder(), text.find("{")
    for _ in range(MOST_OBJECTS):
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            yield value
        place = text.find("{", end)
        if place < 0:
            return


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_COUNT


def _paused(text: str, at: Stamp) -> Iterable[Row]:
    found = _PAUSED.search(text)
    if found is not None:
        yield event(ENGINE, at, "preempted_now", count=number(found[1] or found[2]))


def _paged(text: str, at: Stamp) -> Iterable[Row]:
    found = _PAGED.search(text)
    if found is not None:
        yield figure(ENGINE, at, "kv_memory", size_bytes=size_bytes(found[1], found[2]))
        yield figure(ENGINE, at, "kv_tokens", count=number(found[3]))


def _profiled(text: str, at: Stamp) -> Iterable[Row]:
    found = _PROFILED.search(text)
    if found is not None:
        yield figure(ENGINE, at, "activation_peak", size_bytes=(number(found[1]) or 0) * GIB)
        yield figure(ENGINE, at, "kv_memory", size_bytes=(number(found[2]) or 0) * GIB)
        yield setting(ENGINE, at, "memory_share", "free_gpu_memory_fraction", found[3])
    if (total := _number(_TOTAL, text)) is not None:
        yield figure(ENGINE, at, "total_memory", size_bytes=total * GIB)


def _weights(text: str, at: Stamp) -> Iterable[Row]:
    found = _ENGINE_SIZE.search(text)
    if found is not None:
        yield figure(ENGINE, at, "weights", size_bytes=size_bytes(found[1], found[2]))


def _blocks(text: str, at: Stamp) -> Iterable[Row]:
    if (tokens := _group(_BLOCK, text)) is not None:
        yield setting(ENGINE, at, "block_tokens", "tokens_per_block", tokens)
    if (blocks := _number(_BLOCKS, text)) is not None:
        yield figure(ENGINE, at, "kv_blocks", count=blocks)


def _maxima(text: str, at: Stamp) -> Iterable[Row]:
    found = _MAXIMA.search(text)
    if found is not None:
        yield figure(ENGINE, at, "max_model_len", count=number(found[1]))
        yield figure(ENGINE, at, "max_running", count=number(found[2]))
        yield setting(ENGINE, at, "running_limit", "max_num_requests", found[2])
        yield setting(ENGINE, at, "batched_tokens", "max_num_tokens", found[3])


def _arguments(text: str, at: Stamp) -> Iterable[Row]:
    found = _GIVEN.search(text)
    if found is not None:
        inner = text[found.end() :].strip()
        for kept in settings_of(ENGINE, pairs(inner[1:-1] if inner[-1:] in {")", "}"} else inner[1:])):
            yield setting(ENGINE, at, kept.setting, kept.spelled, kept.told)


def _policy(text: str, at: Stamp) -> Iterable[Row]:
    """A line of a configuration that was shown in a shell."""
    if (policy := _group(_POLICY, text)) is not None:
        yield setting(ENGINE, at, "capacity_policy", "capacity_scheduler_policy", policy.lower(), "config")


def _version(text: str, at: Stamp) -> Iterable[Row]:
    if (version := _group(_VERSION, text)) is not None:
        yield event(ENGINE, at, "version", version)


KINDS: tuple[Kind, ...] = (
    Kind('"kvCacheStats"', _iteration_objects, is_last=True),
    Kind("host_step_time = ", _iteration, is_last=True),
    Kind("'num_generation_tokens':", _iteration, is_last=True),
    Kind("Active Request Count", _statistics, is_last=True),
    Kind("in paged KV cache", _paged),
    Kind("memory usage profiling", _profiled),
    Kind("Loaded engine size:", _weights),
    Kind("Number of tokens per block:", _blocks),
    Kind("locks in KV cache", _blocks),
    Kind("max_num_requests=", _maxima),
    Kind("scheduler_policy", _policy),
    Kind("LLM Args", _arguments),
    Kind("engine args: {", _arguments),
    Kind("PyTorchConfig(", _arguments),
    Kind("TensorRT-LLM version:", _version),
    Kind("paus", _paused),
    said(ENGINE, "KV cache block reuse is disabled", "prefix_cache_off"),
    said(ENGINE, "Run generation only CUDA graph warmup", "graph_capture_start"),
    said(ENGINE, "Engine loaded and ready to serve", "serving"),
)


def _group(form: re.Pattern[str], text: str) -> str | None:
    found = form.search(text)
    return None if found is None else found[1]


def _number(form: re.Pattern[str], text: str) -> float | None:
    return number(_group(form, text))
