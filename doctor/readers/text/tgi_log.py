"""Lines of text-generation-inference, 1.4 to 3.3."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.formats.engine_options import settings_of
from doctor.readers.text.engine_lines import Kind, Row, figure, number, said, setting
from doctor.readers.text.stamp import Stamp

ENGINE = "tgi"
BLOCK_CLUE = "text_generation_launcher: Args {"
"""Starts the launcher's arguments: on one line in older versions, one a line later on, up to a line `}`."""

_ARGUMENT = re.compile(r"\b([a-z_]{2,60}): (?:Some\(\s{0,40})?(?!None)([\w.\-]{1,60}|\"[^\"]{0,200}\")")
_TOTAL = re.compile(r"Setting max batch total tokens to (\d+)")
_BLOCKS = re.compile(r"KV-cache blocks: (\d+), size: (\d+)")
_ATTENTION = re.compile(r"Using attention (\w{1,30}) - Prefix caching (true|false|0|1)", re.IGNORECASE)
_SIZES = re.compile(r"(?:uda [Gg]raphs are enabled for sizes|default cuda graphs) \[([\d, ]{1,500})\]")
_SPECULATION = re.compile(r"Using speculation (\w{1,30}) with (\d+) input ids")


def arguments(text: str, at: Stamp) -> Iterable[Row]:
    """Settings out of the launcher's arguments as Rust prints them."""
    for kept in settings_of(ENGINE, ((name, value) for name, value in _ARGUMENT.findall(text))):
        yield setting(ENGINE, at, kept.setting, kept.spelled, kept.told)


def _inline(text: str, at: Stamp) -> Iterable[Row]:
    """The arguments on one line, as reports quote them without the launcher's name."""
    if "model_id: " in text and "max_total_tokens: " in text:
        yield from arguments(text, at)


def _total(text: str, at: Stamp) -> Iterable[Row]:
    found = _TOTAL.search(text)
    if found is not None:
        yield figure(ENGINE, at, "kv_tokens", count=number(found[1]))


def _blocks(text: str, at: Stamp) -> Iterable[Row]:
    found = _BLOCKS.search(text)
    if found is not None:
        blocks, size = number(found[1]) or 0, number(found[2]) or 0
        yield figure(ENGINE, at, "kv_blocks", count=blocks)
        yield figure(ENGINE, at, "kv_tokens", count=blocks * size)
        yield setting(ENGINE, at, "block_tokens", "block_size", found[2])


def _attention(text: str, at: Stamp) -> Iterable[Row]:
    found = _ATTENTION.search(text)
    if found is not None:
        yield setting(ENGINE, at, "attention", "attention", found[1].lower())
        is_on = found[2].lower() in {"true", "1"}
        yield setting(ENGINE, at, "prefix_cache", "prefix_caching", "true" if is_on else "false")


def _graphs(text: str, at: Stamp) -> Iterable[Row]:
    found = _SIZES.search(text)
    if found is not None:
        sizes = [int(size) for size in found[1].split(",") if size.strip().isdecimal()]
        if sizes and max(sizes) > 0:
            yield figure(ENGINE, at, "graph_max_batch", count=max(sizes))
        else:
            yield setting(ENGINE, at, "eager", "cuda_graphs", "true")


def _speculation(text: str, at: Stamp) -> Iterable[Row]:
    found = _SPECULATION.search(text)
    if found is not None:
        yield setting(ENGINE, at, "spec_method", "speculate", found[1].lower())
        yield setting(ENGINE, at, "spec_tokens", "speculate", found[2])


def _graphs_off(text: str, at: Stamp) -> Iterable[Row]:
    yield setting(ENGINE, at, "eager", "cuda_graphs", "true")


KINDS: tuple[Kind, ...] = (
    Kind("waiting_served_ratio: ", _inline),
    Kind("Setting max batch total tokens to", _total),
    Kind("KV-cache blocks:", _blocks),
    Kind("Using attention ", _attention),
    Kind("raphs are enabled for sizes", _graphs),
    Kind("Using default cuda graphs", _graphs),
    Kind("Using speculation ", _speculation),
    Kind("work with cuda graphs, deactivating them", _graphs_off),
    said(ENGINE, "GPU does not support FP8, using Marlin FP8 kernel", "fp8_weight_only"),
    said(ENGINE, "GPU supports FP8, but using Marlin FP8 kernel", "fp8_weight_only_chosen"),
    said(ENGINE, "repack_fp8_for_marlin", "fp8_weight_only"),
    said(ENGINE, "Bitsandbytes is deprecated", "quantisation_slow", re.compile(r"(Bitsandbytes)")),
    said(ENGINE, "Disabling prefix caching", "prefix_cache_off"),
    said(ENGINE, "Could not import Flash Attention enabled models", "attention_fallback"),
    said(ENGINE, "Model is overloaded", "request_refused"),
)
