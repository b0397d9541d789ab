"""Look-ups of a prefix cache and its block as sentences tell them, where no engine's own line does.

`prefix cache: 0 hits of 812344 queried tokens`, `hit rate 0 %`, `KV block size 784 tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.replica_table import UNKNOWN_ENGINE
from doctor.readers.text.scanner import emptied

_MOST_LINE = 2000
_OTHERS = (
    "vllm:", "sglang:", "Avg prompt", "throughput:", "#cached-token", "_total{", "Avg thr (in/out)", "event=status",
    "INFO", "[TensorRT-LLM]", "WARNING", "DEBUG",
)  # fmt: skip
"""Lines that engines print themselves: other readers take those."""
_AMOUNT = r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?![\d.,]*\d?\s?%)(?![.,]\d)"
_ABOUT = re.compile(
    r"\b(?:prefix|radix|prompt)[ _-]?(?:caching|cache\w*)|\bcache hits?\b|\bprefix hits?\b", re.IGNORECASE
)
_RATE = re.compile(
    r"\b(?:hit[ _-]?rate|hits?|hit[ _-]ratio)\b[^\d\n]{0,16}?(\d{1,3}(?:\.\d{1,4})?)\s?%"
    r"|(?<![\w.])(\d{1,3}(?:\.\d{1,4})?)\s?% (?:hits?|hit rate)\b"
    r"|\b(?:hit[ _-]?rate|hit[ _-]ratio)\b[^\d\n]{0,16}?(0(?:\.\d{1,6})?|1\.0)(?![\d%])",
    re.IGNORECASE,
)
_ASKED = re.compile(
    rf"\b(?:quer(?:y|ies|ied)|look-?ups?|looked up|asked)(?:[ _](?:tokens?|total))?\b[^\d\n%]{{0,12}}?{_AMOUNT}"
    rf"|(?<![\w.,]){_AMOUNT}\s(?:tokens? )?(?:quer(?:y|ies|ied)|look-?ups?|looked up|asked)\b",
    re.IGNORECASE,
)
_FOUND = re.compile(
    rf"\bhits?(?:[ _](?:tokens?|total))?\b[\s=:]{{1,4}}{_AMOUNT}|(?<![\w.,]){_AMOUNT}\s(?:tokens? )?hits?\b",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"\b(?:no|zero|never (?:a|any)|not (?:a|one)(?: single)?) (?:prefix |cache )?hits?\b", re.IGNORECASE
)
_BLOCK = re.compile(
    r"\b(?:kv[ _]|cache[ _]|attention[ _])?(?:block|page)[ _]?size\b[^\d\n]{0,24}?(\d{1,6})\b(?![.,]\d)"
    r"|\b(?:block|page)s? (?:of|is|are|holds?|has|with|=) (\d{1,6}) tokens?\b"
    r"|(?<![\w.,])(\d{1,6})[ -]tokens? (?:kv |cache )?(?:blocks?|pages?)\b",
    re.IGNORECASE,
)


class PrefixWordsScanner:
    """What a text says of a prefix cache without the lines of any engine."""

    kind = "engine-log"
    clues = (
        "refix cache", "refix caching", "refix-cache", "refix-caching", "refix_cache", "refix_caching", "prompt cache",
        "Prompt cache", "radix cache", "cache hit", "Cache hit", "prefix hit",
        "lock size", "lock_size", "age size", "age_size", "token block", "-token block", "tokens per block",
        "block of", "blocks of", "block is", "block holds",
        "hit rate", "queries", "lookups", "look-ups", "looked up", "hits",
    )  # fmt: skip

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._line = 0
        self._is_about = False
        self._has_engine = False
        self._is_given = False

    @property
    def is_open(self) -> bool:
        """Never: each sentence stands alone."""
        return False

    def line(self, number: int, text: str) -> None:
        """Take the figures of one line."""
        line = text[:_MOST_LINE]
        if any(word in line for word in _OTHERS):
            self._has_engine = True
            return
        self._is_about = self._is_about or _ABOUT.search(line) is not None
        self._line = self._line or number
        if (block := _BLOCK.search(line)) is not None:
            self._told.setdefault("block", float(block[1] or block[2] or block[3]))
        if not self._is_about:
            return
        for name, form in (("asked", _ASKED), ("found", _FOUND)):
            if (amount := form.search(line)) is not None:
                self._told.setdefault(name, float((amount[1] or amount[2]).replace(",", "")))
        if (rate := _RATE.search(line)) is not None:
            self._told.setdefault("rate", float(rate[1] or rate[2]) / 100 if rate[1] or rate[2] else float(rate[3]))
        elif _NOTHING.search(line) is not None:
            self._told.setdefault("rate", 0.0)

    def drain(self) -> Iterator[TableBatch]:
        """The figures, once the text is over."""
        if self._is_given:
            self._is_given = False
            yield from emptied(self._rows(), self.kind)

    def facts(self) -> SourceFacts | None:
        """What was told; None beside an engine's own lines, and without a figure of hits."""
        is_told = "rate" in self._told or ("found" in self._told and "asked" in self._told)
        self._is_given = self._is_about and is_told and not self._has_engine
        return SourceFacts(self.kind, "figures of a prefix cache", is_complete=True) if self._is_given else None

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        at: dict[str, Any] = {"engine": UNKNOWN_ENGINE, "line_id": self._line}
        asked, found = self._told.get("asked"), self._told.get("found")
        share = found / asked if found is not None and asked else self._told.get("rate", 0.0)
        metrics = [
            {"engine": UNKNOWN_ENGINE, "scrape_id": 0, "metric": name, "reading_kind": "counter", "reading": amount}
            for name, amount in (("prefix_cache_queries", asked), ("prefix_cache_hits", share * (asked or 0.0)))
            if asked is not None
        ]
        block = self._told.get("block")
        settings = (
            []
            if block is None
            else [{"setting": "block_tokens", "spelled": "block size", "told": f"{block:.0f}", "said_by": "log"}]
        )
        return {
            "metric": metrics,
            "engine_setting": [{**at, **row} for row in settings],
            "engine_sample": [{**at, "phase": "state", "prefix_hit_share": share}],
        }
