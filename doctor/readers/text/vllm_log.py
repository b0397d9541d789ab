"""Lines of vLLM: V0 and V1, from 0.4 to 0.30."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.formats.engine_options import pairs, settings_of
from doctor.readers.text.engine_lines import (
    GIB,
    Kind,
    Row,
    event,
    figure,
    number,
    said,
    sample,
    setting,
    size_bytes,
)
from doctor.readers.text.stamp import Stamp

ENGINE = "vllm"
_RUNNING = re.compile(r"Running: (\d+) reqs")
_WAITING = re.compile(r"(?:Waiting|Pending): (\d+) reqs")
_SWAPPED = re.compile(r"Swapped: (\d+) reqs")
_USAGE = re.compile(r"GPU KV cache usage: ([\d.]+)%")
_HITS = re.compile(r"(?<!External )[Pp]refix cache hit rate: (?:GPU: )?([\d.]+|nan)%")
_PROMPT = re.compile(r"Avg prompt throughput: ([\d.]+) tokens/s")
_OUTPUT = re.compile(r"Avg generation throughput: ([\d.]+) tokens/s")
_PREEMPTED = re.compile(r"Preemptions: (\d+)")
_VERSION = re.compile(r"(?:LLM engine \(v|API server version )([\w.+\-]{1,40})")
_NON_DEFAULT = re.compile(r"non-default args: (?=\{)")
_NAMESPACE = re.compile(r"args: Namespace\(")
_CONFIG = re.compile(r"LLM engine \(v[^)]{1,60}\) with config: ")
_MEAN_LENGTH = re.compile(r"Mean acceptance length: ([\d.]+|nan)")
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens")
_DRAFTED = re.compile(r"Drafted: (\d+) tokens")
_OLD_SPECULATION = re.compile(
    r"System efficiency: ([\d.]+|nan), Number of speculative tokens: (\d+), Number of accepted tokens: (\d+), "
    r"Number of draft tokens(?: tokens)?: (\d+), Number of emitted tokens(?: tokens)?: (\d+)"
)
_CUMULATIVE = re.compile(r"total_num_cumulative_preemption=(\d+)")
_FREE_AT_START = re.compile(
    r"Free memory on device (?:cuda:\d+ )?\(([\d.]+)(?: ?GiB)?/([\d.]+) ?GiB\) on startup"
    r"(?P<is_less> is less than desired|\. Desired) GPU memory utilization (?:is )?\(([\d.]+), ([\d.]+) ?GiB\)"
)
_TOTAL = re.compile(r"total_gpu_memory \(([\d.]+) ?GiB\) x gpu_memory_utilization \(([\d.]+)\) = ([\d.]+) ?GiB")
_V0_MEMORY = re.compile(
    r"model weights take ([\d.]+) ?GiB; non_torch_memory takes (-?[\d.]+) ?GiB; "
    r"PyTorch activation peak memory takes ([\d.]+) ?GiB; "
    r"the rest of the memory reserved for KV Cache is (-?[\d.]+) ?GiB"
)
_PROFILED = re.compile(r"\b(\w{1,40})=(-?[\d.]+)GiB")
_PROFILED_NAMES = {
    "total_gpu_memory": "total_memory",
    "non_torch_memory": "non_torch",
    "kv_cache_size": "kv_memory",
}
_WEIGHTS = re.compile(r"(?:Loading model weights|Model loading) took ([\d.]+) ?(GiB|GB)")
_KV_MEMORY = re.compile(r"Available KV cache memory: (-?[\d.]+) ?GiB")
_KV_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_BLOCKS = re.compile(r"(?:GPU|cuda) blocks: (\d+)")
_NUM_BLOCKS = re.compile(r"after num_gpu_blocks is: (\d+)")
_CAPTURED = re.compile(r"Graph capturing finished in ([\d.]+) secs?(?:\.|, took (-?[\d.]+) GiB)?")
_ESTIMATE = re.compile(r"Estimated CUDA graph memory: ([\d.]+) GiB")
_LENGTH_OVER = re.compile(
    r"max seq len \((\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((\d+)\)"
)
_NEEDED = re.compile(
    r"max seq len \((\d+)\), \(?([\d.]+) Gi?B KV cache is needed, which is larger than the available KV cache memory "
    r"\((-?[\d.]+) Gi?B\)"
)
_ESTIMATED_LENGTH = re.compile(r"estimated maximum model length is (\d+)")
_THREADS = re.compile(r"Reducing Torch (?:threads|parallelism) from (\d+)")
_METHOD = re.compile(r"\b([\w\-]{1,40}) quantization is not fully optimized yet")
_FORCED = re.compile(r"specified quantization=([\w\-]{1,40}) explicitly")
_MARLIN = re.compile(r"convertible to (\w{1,40})")
_CHUNKED = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")
_BLOCK = re.compile(r"Setting attention block size to (\d+) tokens")
_SUPPORTS = re.compile(r"Using ([\w \-./]{1,60}?) backend")
_MOE_DEVICE = re.compile(r"device_name=([\w\-. ]{1,60}?)(?:,dtype|\.json|,block|$)")


def _status(text: str, at: Stamp) -> Iterable[Row]:
    usage, hits = _number(_USAGE, text), _number(_HITS, text)
    yield sample(
        ENGINE,
        at,
        "state",
        running_count=_number(_RUNNING, text),
        waiting_count=_number(_WAITING, text),
        swapped_count=_number(_SWAPPED, text),
        kv_usage_share=None if usage is None else usage / 100,
        prefix_hit_share=None if hits is None else hits / 100,
        prompt_token_hz=_number(_PROMPT, text),
        output_token_hz=_number(_OUTPUT, text),
        preemption_count=_number(_PREEMPTED, text),
    )


def _old_hits(text: str, at: Stamp) -> Iterable[Row]:
    """V0 has the hit rate on a line of its own."""
    hits = _number(_HITS, text)
    if hits is not None and "throughput" not in text:
        yield sample(ENGINE, at, "state", prefix_hit_share=hits / 100)


def _speculation(text: str, at: Stamp) -> Iterable[Row]:
    length = _number(_MEAN_LENGTH, text)
    if length is not None:
        yield sample(
            ENGINE,
            at,
            "speculation",
            accept_length_count=length,
            accepted_count=_number(_ACCEPTED, text),
            drafted_count=_number(_DRAFTED, text),
        )


def _old_speculation(text: str, at: Stamp) -> Iterable[Row]:
    """V0's acceptance rate counts tokens behind a rejection; the length comes from the emitted tokens."""
    found = _OLD_SPECULATION.search(text)
    if found is not None:
        per_draft, accepted, drafted, emitted = (number(group) or 0.0 for group in found.groups()[1:])
        drafts = drafted / max(per_draft, 1)
        length = emitted / drafts if drafts else None
        yield sample(
            ENGINE,
            at,
            "speculation",
            accept_length_count=length,
            accepted_count=accepted,
            drafted_count=drafted,
        )
        yield setting(ENGINE, at, "spec_tokens", "num_speculative_tokens", f"{per_draft:.0f}")


def _settings(form: re.Pattern[str], text: str, at: Stamp) -> Iterable[Row]:
    found = form.search(text)
    if found is not None:
        for kept in settings_of(ENGINE, pairs(text[found.end() :])):
            yield setting(ENGINE, at, kept.setting, kept.spelled, kept.told)


def _arguments(text: str, at: Stamp) -> Iterable[Row]:
    return _settings(_NON_DEFAULT, text, at)


def _namespace(text: str, at: Stamp) -> Iterable[Row]:
    """Servers before 0.8 print every argument, also those left at their defaults."""
    return _settings(_NAMESPACE, text.rstrip().removesuffix(")"), at)


def _profiled(text: str, at: Stamp) -> Iterable[Row]:
    """0.6.4 and 0.6.5 name their figures `kv_cache_size=2.89GiB`; the peak there includes the weights."""
    for name, amount in _PROFILED.findall(text):
        if name in _PROFILED_NAMES:
            yield figure(ENGINE, at, _PROFILED_NAMES[name], size_bytes=_gib(amount))


def _config(text: str, at: Stamp) -> Iterable[Row]:
    yield from _version(text, at)
    yield from _settings(_CONFIG, text, at)


def _version(text: str, at: Stamp) -> Iterable[Row]:
    found = _VERSION.search(text)
    if found is not None:
        yield event(ENGINE, at, "version", found[1])


def _budget(text: str, at: Stamp) -> Iterable[Row]:
    found = _TOTAL.search(text)
    if found is not None:
        yield figure(ENGINE, at, "total_memory", size_bytes=_gib(found[1]))
        yield figure(ENGINE, at, "requested_memory", size_bytes=_gib(found[3]), share=number(found[2]))
    found = _V0_MEMORY.search(text)
    if found is not None:
        for name, amount in zip(("weights", "non_torch", "activation_peak", "kv_memory"), found.groups(), strict=True):
            yield figure(ENGINE, at, name, size_bytes=_gib(amount))


def _too_little_free(text: str, at: Stamp) -> Iterable[Row]:
    found = _FREE_AT_START.search(text)
    if found is not None:
        free, total, _, share, wanted = found.groups()
        yield figure(ENGINE, at, "free_memory", size_bytes=_gib(free))
        yield figure(ENGINE, at, "total_memory", size_bytes=_gib(total))
        yield figure(ENGINE, at, "requested_memory", size_bytes=_gib(wanted), share=number(share))
        if "less" in found["is_less"]:
            yield event(ENGINE, at, "free_too_small")


def _weights(text: str, at: Stamp) -> Iterable[Row]:
    found = _WEIGHTS.search(text)
    if found is not None:
        yield figure(ENGINE, at, "weights", size_bytes=size_bytes(found[1], found[2]))


def _cache(text: str, at: Stamp) -> Iterable[Row]:
    found = _KV_MEMORY.search(text)
    if found is not None:
        yield figure(ENGINE, at, "kv_memory", size_bytes=_gib(found[1]))
    tokens = _number(_KV_TOKENS, text)
    if tokens is not None:
        yield figure(ENGINE, at, "kv_tokens", count=tokens)
    found = _CONCURRENCY.search(text)
    if found is not None:
        yield figure(ENGINE, at, "max_model_len", count=number(found[1]))
        yield figure(ENGINE, at, "max_concurrency", count=number(found[2]))


def _blocks(text: str, at: Stamp) -> Iterable[Row]:
    blocks = _number(_BLOCKS, text)
    if blocks is None:
        blocks = _number(_NUM_BLOCKS, text)
    if blocks is not None:
        yield figure(ENGINE, at, "kv_blocks", count=blocks)


def _capture_end(text: str, at: Stamp) -> Iterable[Row]:
    found = _CAPTURED.search(text)
    if found is not None:
        seconds, memory = number(found[1]), _gib(found[2])
        yield event(ENGINE, at, "graph_capture_end", size=memory)
        yield figure(ENGINE, at, "graph_time", ns=None if seconds is None else seconds * 1e9)
        yield figure(ENGINE, at, "graph_memory", size_bytes=memory)


def _capture_start(text: str, at: Stamp) -> Iterable[Row]:
    if "100%" not in text:
        yield event(ENGINE, at, "graph_capture_start")


def _graph_estimate(text: str, at: Stamp) -> Iterable[Row]:
    yield figure(ENGINE, at, "graph_estimate", size_bytes=_gib(_group(_ESTIMATE, text)))


def _too_long(text: str, at: Stamp) -> Iterable[Row]:
    found = _LENGTH_OVER.search(text)
    if found is not None:
        yield figure(ENGINE, at, "max_model_len", count=number(found[1]))
        yield figure(ENGINE, at, "kv_tokens", count=number(found[2]))
        yield event(ENGINE, at, "length_over_kv")
    found = _NEEDED.search(text)
    if found is not None:
        yield figure(ENGINE, at, "max_model_len", count=number(found[1]))
        yield figure(ENGINE, at, "kv_needed", size_bytes=_gib(found[2]))
        yield figure(ENGINE, at, "kv_memory", size_bytes=_gib(found[3]))
        fits = _number(_ESTIMATED_LENGTH, text)
        if fits is not None:
            yield figure(ENGINE, at, "kv_tokens", count=fits)
        yield event(ENGINE, at, "length_over_kv")


def _preempted(text: str, at: Stamp) -> Iterable[Row]:
    """One line stands for fifty; the count in it is what counts."""
    yield event(ENGINE, at, "preempted", count=_number(_CUMULATIVE, text))


def _threads(text: str, at: Stamp) -> Iterable[Row]:
    yield event(ENGINE, at, "threads_reduced", count=_number(_THREADS, text))


def _chunked(text: str, at: Stamp) -> Iterable[Row]:
    yield setting(ENGINE, at, "chunked_prefill", "enable_chunked_prefill", "true")
    tokens = _group(_CHUNKED, text)
    if tokens is not None:
        yield setting(ENGINE, at, "batched_tokens", "max_num_batched_tokens", tokens)


def _block(text: str, at: Stamp) -> Iterable[Row]:
    tokens = _group(_BLOCK, text)
    if tokens is not None:
        yield setting(ENGINE, at, "block_tokens", "block_size", tokens)


KINDS: tuple[Kind, ...] = (
    Kind("Avg prompt throughput:", _status, is_last=True),
    Kind("refix cache hit rate:", _old_hits),
    Kind("SpecDecoding metrics:", _speculation, is_last=True),
    Kind("Speculative metrics:", _old_speculation, is_last=True),
    Kind("non-default args: {", _arguments, is_last=True),
    Kind("args: Namespace(", _namespace, is_last=True),
    Kind("LLM engine (v", _config, is_last=True),
    Kind("Memory profiling results:", _profiled),
    Kind("vLLM API server version", _version),
    Kind("total_gpu_memory (", _budget),
    Kind("model weights take", _budget),
    Kind("Free memory on device", _too_little_free),
    Kind("oading model weights took", _weights),
    Kind("Model loading took", _weights),
    Kind("Available KV cache memory:", _cache),
    Kind("GPU KV cache size:", _cache),
    Kind("Maximum concurrency for", _cache),
    Kind(" blocks: ", _blocks),
    Kind("num_gpu_blocks is:", _blocks),
    Kind("Graph capturing finished", _capture_end),
    Kind("Capturing CUDA graph", _capture_start),
    Kind("Capturing the model for CUDA graphs", _capture_start),
    Kind("Estimated CUDA graph memory:", _graph_estimate),
    Kind("max seq len (", _too_long),
    Kind("is preempted by", _preempted, is_last=True),
    Kind("Setting attention block size to", _block),
    Kind("Reducing Torch ", _threads),
    Kind("Chunked prefill is enabled", _chunked),
    said(ENGINE, "No available memory for the cache blocks", "no_kv_room"),
    said(ENGINE, "quantization is not fully optimized yet", "quantisation_slow", _METHOD),
    said(ENGINE, "explicitly, so forcing", "quantisation_forced", _FORCED),
    said(ENGINE, "is convertible to", "quantisation_fast", _MARLIN),
    said(ENGINE, "Using default MoE config", "moe_default", _MOE_DEVICE),
    said(ENGINE, "Weight-only FP8 compression will be used", "fp8_weight_only"),
    said(ENGINE, "Cudagraph is disabled under eager mode", "eager"),
    said(ENGINE, "Using XFormers backend", "attention_fallback"),
    said(ENGINE, "Cannot use FlashAttention", "attention_fallback"),
    said(ENGINE, "FlashAttention", "attention_fused", _SUPPORTS),
    said(ENGINE, "Using a slow tokenizer", "slow_tokenizer"),
    said(ENGINE, "Application startup complete", "serving"),
)


def _group(form: re.Pattern[str], text: str) -> str | None:
    found = form.search(text)
    return None if found is None else found[1]


def _number(form: re.Pattern[str], text: str) -> float | None:
    return number(_group(form, text))


def _gib(amount: str | None) -> int | None:
    value = number(amount)
    return None if value is None else round(value * GIB)
