"""Lines of SGLang, from 0.2 to 0.5."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.formats.engine_options import pairs, settings_of
from doctor.readers.text.engine_lines import Kind, Row, event, figure, number, said, sample, setting, size_bytes
from doctor.readers.text.stamp import Stamp

ENGINE = "sglang"

_RETRACTED = re.compile(r"#retracted_reqs: (\d+)")
_ARGUMENTS = re.compile(r"server_args=ServerArgs(?=\()")
_MEMORY = re.compile(r"avail mem=(-?[\d.]+) (GB|MB)")
_WEIGHTS = re.compile(r"mem usage=(-?[\d.]+) (GB|MB)")
_DTYPE = re.compile(r"\bdtype=torch\.(\w{1,20})")
_METHOD = re.compile(r"\bquant=([\w\-]{1,40})")
_KV = re.compile(r"#tokens: (\d+)(?:, K size: ([\d.]+) GB, V size: ([\d.]+) GB|, KV size: ([\d.]+) GB)?")
_LIMITS = re.compile(r"max_total_num_tokens=(\d+)")
_CONTEXT = re.compile(r"context_len=(\d+)")
_MOST_RUNNING = re.compile(r"max_running_requests=(\d+)")
_CHUNK = re.compile(r"chunked_prefill_size=(-?\d+)")
_TIME = re.compile(r"Time elapsed: ([\d.]+) s|elapsed=([\d.]+) s")
_SIZES = re.compile(r"\b(?:bs|batch sizes?|capture_bs)[ =]{1,3}\[([\d, ]{1,1000})\]")
_SLOW_METHOD = re.compile(r"\b([\w\-]{1,40}) quantization is not fully optimized yet")
_DEVICE = re.compile(r"device_name=([\w\-. ]{1,60}?)(?:,dtype|\.json|_down|,block|$)")
_AROUND = re.compile(r"\\n|[\"`]")
_BACKEND = re.compile(r"(?:Use|Using) ([\w\-]{1,30}) (?:attention )?backend")


def _fields(text: str) -> dict[str, str]:
    """`#running-req: 5, token usage: 0.30` as names and values, without what a report or JSON puts around them."""
    plain = _AROUND.split(text, maxsplit=1)[0] if _AROUND.search(text) else text
    fields = dict(part.split(": ", 1) for part in plain.replace("**", "").split(", ") if ": " in part)
    if "_" not in plain:
        return fields
    return {name.strip("_ "): value.strip("_ ") for name, value in fields.items()}


def _usage(fields: dict[str, str]) -> float | None:
    return number(fields.get("token usage") or fields.get("full token usage") or fields.get("page usage"))


def _decode(text: str, at: Stamp) -> Iterable[Row]:
    fields = _fields(text[text.find("Decode batch") :])
    running = number(fields.get("#running-req") or fields.get("Decode batch. #running-req"))
    if running is None and "gen throughput (token/s)" not in fields:
        return
    graph = fields.get("cuda graph") or fields.get("npu graph") or fields.get("cpu graph")
    yield sample(
        ENGINE,
        at,
        "decode",
        running_count=running,
        waiting_count=number(fields.get("#queue-req")),
        kv_usage_share=_usage(fields),
        output_token_hz=number(fields.get("gen throughput (token/s)")),
        graph_share={"True": 1.0, "False": 0.0}.get(graph or ""),
        accept_length_count=number(fields.get("accept len")),
    )


def _prefill(text: str, at: Stamp) -> Iterable[Row]:
    fields = _fields(text[text.find("Prefill batch") :])
    new, cached = number(fields.get("#new-token")), number(fields.get("#cached-token"))
    if new is None:
        return
    yield sample(
        ENGINE,
        at,
        "prefill",
        running_count=number(fields.get("#running-req")),
        waiting_count=number(fields.get("#queue-req")),
        kv_usage_share=_usage(fields),
        prompt_token_hz=number(fields.get("input throughput (token/s)")),
        new_sequence_count=number(fields.get("#new-seq") or fields.get("Prefill batch. #new-seq")),
        new_token_count=new,
        cached_token_count=cached,
        prefix_hit_share=None if cached is None or not new + cached else cached / (new + cached),
    )


def _retracted(text: str, at: Stamp) -> Iterable[Row]:
    yield event(ENGINE, at, "retracted", count=_number(_RETRACTED, text) or 1)


def _arguments(text: str, at: Stamp) -> Iterable[Row]:
    found = _ARGUMENTS.search(text)
    if found is not None:
        inner = text[found.end() + 1 :].rstrip().removesuffix(")")
        for kept in settings_of(ENGINE, pairs(inner)):
            yield setting(ENGINE, at, kept.setting, kept.spelled, kept.told)


def _load_begin(text: str, at: Stamp) -> Iterable[Row]:
    yield figure(ENGINE, at, "free_at_start", size_bytes=_memory(text))


def _load_end(text: str, at: Stamp) -> Iterable[Row]:
    used = _WEIGHTS.search(text)
    yield figure(ENGINE, at, "weights", size_bytes=None if used is None else size_bytes(used[1], used[2]))
    yield figure(ENGINE, at, "free_after_load", size_bytes=_memory(text))
    if (dtype := _DTYPE.search(text)) is not None:
        yield setting(ENGINE, at, "dtype", "dtype", dtype[1])
    if (method := _METHOD.search(text)) is not None and method[1].lower() != "none":
        yield setting(ENGINE, at, "quantisation", "quantization", method[1].lower())


def _cache(text: str, at: Stamp) -> Iterable[Row]:
    found = _KV.search(text)
    if found is not None:
        parts = [number(part) or 0.0 for part in found.groups()[1:]]
        yield figure(ENGINE, at, "kv_tokens", count=number(found[1]))
        if sum(parts):
            yield figure(ENGINE, at, "kv_memory", size_bytes=sum(parts) * 2**30)


def _limits(text: str, at: Stamp) -> Iterable[Row]:
    for form, name in ((_LIMITS, "kv_tokens"), (_CONTEXT, "max_model_len"), (_MOST_RUNNING, "max_running")):
        if (count := _number(form, text)) is not None:
            yield figure(ENGINE, at, name, count=count)
    if (most := _group(_MOST_RUNNING, text)) is not None:
        yield setting(ENGINE, at, "running_limit", "max_running_requests", most)
    if (chunk := _group(_CHUNK, text)) is not None:
        yield setting(ENGINE, at, "chunk_tokens", "chunked_prefill_size", chunk)


def _pool(text: str, at: Stamp) -> Iterable[Row]:
    yield figure(ENGINE, at, "free_memory", size_bytes=_memory(text))


def _capture_start(text: str, at: Stamp) -> Iterable[Row]:
    yield event(ENGINE, at, "graph_capture_start", size=_memory(text))
    yield from _capture_sizes(text, at)


def _capture_sizes(text: str, at: Stamp) -> Iterable[Row]:
    sizes = _group(_SIZES, text)
    if sizes is not None:
        largest = max((int(size) for size in sizes.split(",") if size.strip().isdecimal()), default=0)
        if largest:
            yield figure(ENGINE, at, "graph_max_batch", count=largest)


def _capture_end(text: str, at: Stamp) -> Iterable[Row]:
    used, time = _WEIGHTS.search(text), _TIME.search(text)
    memory = None if used is None else size_bytes(used[1], used[2])
    yield event(ENGINE, at, "graph_capture_end", size=memory)
    yield figure(ENGINE, at, "graph_memory", size_bytes=memory)
    if time is not None:
        yield figure(ENGINE, at, "graph_time", ns=(number(time[1] or time[2]) or 0) * 1e9)


KINDS: tuple[Kind, ...] = (
    Kind("Decode batch", _decode, is_last=True),
    Kind("Prefill batch", _prefill, is_last=True),
    Kind("#retracted_reqs:", _retracted, is_last=True),
    Kind("server_args=ServerArgs(", _arguments, is_last=True),
    Kind("Load weight begin", _load_begin),
    Kind("Load weight end", _load_end),
    Kind("KV Cache is allocated", _cache),
    Kind("max_total_num_tokens=", _limits),
    Kind("Memory pool end", _pool),
    Kind("apture cuda graph begin", _capture_start),
    Kind("CUDA graph begin", _capture_start),
    Kind("Capture cuda graph bs", _capture_sizes),
    Kind("apture cuda graph end", _capture_end),
    Kind("CUDA graph end", _capture_end),
    said(ENGINE, "Using default MoE kernel config", "moe_default", _DEVICE),
    said(ENGINE, "quantization is not fully optimized yet", "quantisation_slow", _SLOW_METHOD),
    said(ENGINE, "The server is fired up and ready to roll", "serving"),
    said(ENGINE, "Attention backend not", "attention_fused", _BACKEND),
    said(ENGINE, "Not enough memory. Please try to increase --mem-fraction-static", "no_kv_room"),
    said(ENGINE, "Cuda graph is disabled", "eager"),
)


def _group(form: re.Pattern[str], text: str) -> str | None:
    found = form.search(text)
    return None if found is None else found[1]


def _number(form: re.Pattern[str], text: str) -> float | None:
    return number(_group(form, text))


def _memory(text: str) -> int | None:
    found = _MEMORY.search(text)
    return None if found is None else size_bytes(found[1], found[2])
