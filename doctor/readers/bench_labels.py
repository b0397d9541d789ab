"""What a label of a benchmark's run says: `TP=4`, `prefix caching off`, `eager`, `k=3`, `--quantization awq`."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_LABEL = 80
_LABEL_COLUMNS = frozenset((
    "", "config", "configuration", "setup", "variant", "label", "mode", "case", "setting", "settings", "run",
    "scenario", "test", "name", "parallelconfig", "parallelism", "parallel", "deployment", "option", "options",
    "version", "condition", "layout", "strategy", "sharding", "placement", "split", "flags", "flag", "args",
    "arguments",
))  # fmt: skip
_BASELINE = re.compile(
    r"\A[(\[\s-]{0,4}(?:defaults?|baseline|none|stock|vanilla|unset|as is|no flags?|(?:the )?flags? (?:removed|dropped)"
    r"|without(?: it| the flag)?|plain)?(?:[\s,;)\]-]|\Z)"
)
_FEW_BITS = re.compile(r"\bload_in_(?:4|8)_?bits?\b")
_BRACKETED = re.compile(r"\(([^()]{1,40})\)")
_BALANCED = re.compile(
    r"\beplb\b|\bexperts? (?:load )?(?:re)?balanc\w*|\bload[ -]balanced experts\b|\brearranged? experts\b"
)
_PROFILED = re.compile(r"\b(?:nsys|nsight(?: systems)?|profil(?:er|ed|ing|e))\b")
_NEGATED = re.compile(r"\b(?:before|no|non|not|without|off|disabled?|false)\b|\bw/o\b|--no-|--disable-")
_COUNTS = (
    ("tp", re.compile(r"(?<![a-wyz])(?:tp|tensor[ _-]parallel(?:[ _-]size)?)\s?[=:]?\s?(\d{1,3})(?!\d)")),
    ("pp", re.compile(r"(?<![a-wyz])(?:pp|pipeline[ _-]parallel(?:[ _-]size)?)\s?[=:]?\s?(\d{1,3})(?!\d)")),
    ("dp", re.compile(r"(?<![a-wyz])(?:dp|data[ _-]parallel(?:[ _-]size)?)\s?[=:]?\s?(\d{1,3})(?!\d)")),
    ("gpus", re.compile(r"(?<![\w.])(\d{1,3})\s?(?:x\s|×\s?)?(?:gpus?|devices?|cards?)\b")),
    ("redundant_experts", re.compile(r"(?<![\w.])(\d{1,4}) (?:redundant|extra|spare) experts?\b")),
    (
        "gpus",
        re.compile(
            r"(?<![\w.])(\d{1,2})\s?[x×]\s?(?:nvidia |geforce |tesla |rtx )*"
            r"(?:[abhlvt]\d{1,4}|g[bh]\d{3}|\d{4}|mi\d{3})"
        ),
    ),
    ("concurrency", re.compile(r"\b(?:concurrency|concurrent requests|users|clients)\s?[=:]?\s?(\d{1,5})(?!\d)")),
    ("batch", re.compile(r"\b(?:batch(?:[ _-]?size)?|bs)\s?[=:]?\s?(\d{1,5})(?!\d)")),
    ("draft_tokens", re.compile(r"(?<![\w.])(\d{1,3}) (?:draft|spec(?:ulative)?)(?:ed)?[ _-]tokens?\b")),
    ("draft_tokens", re.compile(r"\b(?:k|num_speculative_tokens|num_spec_tokens)\s?=\s?(\d{1,3})(?!\d)")),
)
_MODEL = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,2})?)\s?b(?:illion)?(?!\w)")
_NO_DRAFT = re.compile(
    r"\b(?:no|without|w/o) (?:spec\w*|draft\w*|mtp|eagle\w*)|\bspec\w* (?:decod\w* )?(?:off|disabled)\b"
)
_PREFIX = re.compile(r"(?<![a-z])(?:prefix|radix|block)[ _-](?:cache\w*|caching|reuse)\b|\bcaching\b|\bapc\b")
_EAGER = re.compile(r"\beager\b")
_GRAPHS = re.compile(r"\b(?:cuda[ _-]?)?graphs?\b")
_QUANTISED = re.compile(
    r"(?:(?:--)?quantization[ =])?(awq_marlin|gptq_marlin|awq|gptq|marlin|bitsandbytes|bnb|fp8|int8|int4"
    r"|w8a8|w4a16|bf16|fp16|bfloat16|float16)\Z"
)


def is_label(column: str) -> bool:
    """Tell whether a column of this name holds labels of runs."""
    return re.sub(r"[^a-z]", "", column.lower()[:40]) in _LABEL_COLUMNS


def is_baseline(label: str) -> bool:
    """Tell whether a label says that nothing was set: `default`, `baseline`, `(none)`, `-`."""
    return _BASELINE.match(label.strip().lower()[:MOST_LABEL]) is not None


def fields_of(label: str) -> Iterator[tuple[str, str]]:
    """Yield columns, as a table would name them, and values that a label stands for; nothing for what it cannot be."""
    plain = re.sub(r"[`*]", "", label.strip().lower())
    if len(plain) > MOST_LABEL:
        return
    counted: set[str] = set()
    for column, form in _COUNTS:
        found = form.search(plain)
        if found is not None and column not in counted:
            counted.add(column)
            yield column, found[1]
    if (size := _MODEL.search(plain)) is not None:
        yield "model", f"{size[1]}b"
    if _NO_DRAFT.search(plain) is not None:
        yield "draft_tokens", "0"
        return
    yield from _switches(plain, is_negated=_NEGATED.search(plain) is not None)
    inner = _BRACKETED.search(plain)
    quantised = _QUANTISED.match(plain) or (inner and _QUANTISED.match(inner[1]))
    if quantised is not None:
        yield "quantization", quantised[1]
    elif _FEW_BITS.search(plain) is not None and _NEGATED.search(plain) is None:
        yield "quantization", "bitsandbytes"


def _switches(plain: str, *, is_negated: bool) -> Iterator[tuple[str, str]]:
    """What a label switches on or off."""
    if _PREFIX.search(plain) is not None:
        yield "prefix_caching", "off" if is_negated else "on"
    elif _EAGER.search(plain) is not None:
        yield "eager", "false" if is_negated else "true"
    elif _GRAPHS.search(plain) is not None:
        yield "eager", "true" if is_negated else "false"
    if _PROFILED.search(plain) is not None:
        yield "nsys", "no" if is_negated else "yes"
    if _BALANCED.search(plain) is not None:
        yield "eplb", "off" if is_negated else "on"
