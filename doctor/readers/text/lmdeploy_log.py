"""Lines of lmdeploy, 0.0 to 0.12: both of its engines, and the settings that TurboMind prints as an INI file."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.formats.engine_options import pairs, settings_of
from doctor.readers.text.engine_lines import Kind, Row, event, figure, number, said, sample, setting
from doctor.readers.text.stamp import Stamp

ENGINE = "lmdeploy"

_THROUGHPUT = re.compile(r"Avg thr \(in/out\): ([\d.]+) / ([\d.]+) tokens/s")
_ENGINE_QUEUE = re.compile(r"Engine \(running/waiting\): (\d+) / (\d+)")
_SERVER_QUEUE = re.compile(r"Server \([^)]{1,80}\): (\d+) / (\d+) / (\d+)(?: / (\d+))?")
_USAGE = re.compile(r"KV cache: ([\d.]+)%")
_HITS = re.compile(r"Prefix cache hit rate: ([\d.]+)%")
_LENGTH = re.compile(r"Mean acceptance length: ([\d.]+)")
_ACCEPTED = re.compile(r"Accepted: (\d+) tokens, Drafted: (\d+) tokens")
_CONFIG = re.compile(r"backend_config=(?:Turbomind|Pytorch)EngineConfig(?=\()")
_MOST_BLOCKS = re.compile(r"max_block_count = (\d+)")
_PRINTED = re.compile(
    r"\b(session_len|instance_num|cache_max_entry_count|num_layer|kv_head_num|size_per_head|max_batch_size)"
    r"[\"'`]?\s{0,4}(?:[=:]|\bis\b|\bof\b)?\s{0,4}(\d{1,9}(?:\.\d{1,6})?)\b(?!\s{0,2}[*x])"
)
_PRINTED_WORDS = {
    "session_len": "model_len",
    "instance_num": "instances",
    "cache_max_entry_count": "memory_share",
    "max_batch_size": "running_limit",
    "num_layer": "layer_count",
    "kv_head_num": "kv_head_count",
    "size_per_head": "head_dim_count",
}
_LIMIT_LINE = re.compile(r"\s{0,8}max_batch_size\s{0,4}=\s{0,4}\d")
_VERSION = re.compile(r"\blmdeploy(?:==| ?[:=] ?| (?:version )?)v?(\d{1,2}\.\d{1,3}\.\d{1,4})")
_BLOCK = re.compile(r"block_size = ([\d.]+) MB")


def _status(text: str, at: Stamp) -> Iterable[Row]:
    rates, queue, server = _THROUGHPUT.search(text), _ENGINE_QUEUE.search(text), _SERVER_QUEUE.search(text)
    if rates is None:
        return
    usage, hits, length, spec = (form.search(text) for form in (_USAGE, _HITS, _LENGTH, _ACCEPTED))
    at_door = 0.0 if server is None else number(server[4] or server[3]) or 0.0
    yield sample(
        ENGINE,
        at,
        "state",
        running_count=None if queue is None else number(queue[1]),
        waiting_count=None if queue is None else (number(queue[2]) or 0.0) + at_door,
        kv_usage_share=None if usage is None else (number(usage[1]) or 0.0) / 100,
        prefix_hit_share=None if hits is None else (number(hits[1]) or 0.0) / 100,
        prompt_token_hz=number(rates[1]),
        output_token_hz=number(rates[2]),
        accept_length_count=None if length is None else number(length[1]),
        accepted_count=None if spec is None else number(spec[1]),
        drafted_count=None if spec is None else number(spec[2]),
    )


def _config(text: str, at: Stamp) -> Iterable[Row]:
    found = _CONFIG.search(text)
    if found is not None:
        for kept in settings_of(ENGINE, pairs(text[found.end() + 1 :].rstrip().removesuffix(")"))):
            yield setting(ENGINE, at, kept.setting, kept.spelled, kept.told)


def _blocks(text: str, at: Stamp) -> Iterable[Row]:
    if (found := _MOST_BLOCKS.search(text)) is not None:
        yield figure(ENGINE, at, "kv_blocks", count=number(found[1]))
    if (found := _BLOCK.search(text)) is not None:
        yield figure(ENGINE, at, "kv_block", size_bytes=(number(found[1]) or 0.0) * 2**20)


def _printed(text: str, at: Stamp) -> Iterable[Row]:
    """Names and numbers of a configuration that the engine printed, or that somebody quotes."""
    if _CONFIG.search(text) is None:
        for name, amount in _PRINTED.findall(text):
            yield setting(ENGINE, at, _PRINTED_WORDS[name], name, amount)


def _limit(text: str, at: Stamp) -> Iterable[Row]:
    """A line of its own in the printed file; within other lines other engines use the name too."""
    if _LIMIT_LINE.match(text) is not None:
        yield from _printed(text, at)


def _whole_sequences(text: str, at: Stamp) -> Iterable[Row]:
    """Before 0.1 the cache was kept by a manager of whole sequences; a manager of blocks took its place."""
    yield setting(ENGINE, at, "cache_kind", "LlamaCacheManager", "contiguous")


def _version(text: str, at: Stamp) -> Iterable[Row]:
    if (found := _VERSION.search(text)) is not None:
        yield event(ENGINE, at, "version", found[1])


KINDS: tuple[Kind, ...] = (
    Kind("Avg thr (in/out):", _status, is_last=True),
    Kind("backend_config=", _config),
    Kind("[BlockManager] ", _blocks),
    Kind("[LlamaCacheManager]", _whole_sequences),
    Kind("session_len", _printed),
    Kind("instance_num", _printed),
    Kind("cache_max_entry_count", _printed),
    Kind("num_layer", _printed),
    Kind("kv_head_num", _printed),
    Kind("size_per_head", _printed),
    Kind("max_batch_size", _limit),
    Kind("lmdeploy", _version),
    said(ENGINE, "Fallback to pytorch engine", "engine_fallback"),
    said(ENGINE, "no next prefill running request, Maybe cache is full", "no_kv_room"),
    said(ENGINE, "cache out of memory, no request can be admitted", "no_kv_room"),
)
