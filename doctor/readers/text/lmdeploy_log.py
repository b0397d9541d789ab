"""Lines of lmdeploy, 0.1 to 0.12: both of its engines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.formats.engine_options import pairs, settings_of
from doctor.readers.text.engine_lines import Kind, Row, figure, number, said, sample, setting
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


KINDS: tuple[Kind, ...] = (
    Kind("Avg thr (in/out):", _status, is_last=True),
    Kind("backend_config=", _config),
    Kind("[BlockManager] ", _blocks),
    said(ENGINE, "Fallback to pytorch engine", "engine_fallback"),
    said(ENGINE, "no next prefill running request, Maybe cache is full", "no_kv_room"),
    said(ENGINE, "cache out of memory, no request can be admitted", "no_kv_room"),
)
