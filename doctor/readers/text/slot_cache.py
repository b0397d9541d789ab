"""A cache that is kept whole for each slot, as people describe it: `session_len 8200, 10 slots, not paged`.

Only texts that say that the cache is not paged are taken: an engine that pages has the same settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.scanner import batch_of

_MOST_LINE = 2000
_MOST = 10**9
_AMOUNT = r"(\d{1,3}(?:,\d{3}){1,3}|\d{1,9})(k?)\b(?!\.\d)"
_IS = r"[\"'`]?\s{0,3}(?:=|:|is|of|to|at)?\s{0,3}"
_LENGTH = re.compile(
    rf"\b(?:session_len|max_seq_len|max_sequence_length|max_length|max_len|max_model_len|n_ctx|ctx(?:_len"
    rf"|_size)?|context(?:[ _](?:len(?:gth)?|size|window))?"
    rf"|(?:max(?:imum)? )?(?:sequence|session|context) length){_IS}{_AMOUNT}",
    re.IGNORECASE,
)
_SLOTS = re.compile(
    rf"\b(?:max_batch_size|batch[_ ]size|instance_num|instances?|slots?|n_parallel|n_slots|max_concurrency"
    rf"|num_slots){_IS}{_AMOUNT}"
    rf"|(?<![\w.,]){_AMOUNT}\s(?:cache |kv |batch )?(?:slots|instances)\b",
    re.IGNORECASE,
)
_PRODUCT = re.compile(
    rf"(?<![\w.,]){_AMOUNT}\s(?:slots?|instances?|sequences|sessions)\s?(?:x|×|\*|of|with|at)\s?{_AMOUNT}",
    re.IGNORECASE,
)
_SHAPE = (
    (
        "layer_count",
        re.compile(
            r"\b(?:num_(?:hidden_)?layers?|n_layers?|layers)[\"'`]?\s?[=:]\s?(\d{1,4})\b"
            r"|(?<![\w.])(\d{1,4}) layers\b",
            re.I,
        ),
    ),
    (
        "kv_head_count",
        re.compile(
            r"\b(?:num_key_value_heads|kv_head_num|n_kv_heads?|kv[ _]heads?)[\"'`]?\s?[=:]\s?(\d{1,4})\b"
            r"|(?<![\w.])(\d{1,4}) (?:kv|key/value|key-value)[ -]heads?\b",
            re.I,
        ),
    ),
    (
        "head_dim_count",
        re.compile(
            r"\b(?:head[ _]?dim(?:ension)?|size_per_head|head size)[\"'`]?\s?[=:]?\s?(?:of )?(\d{1,4})\b()", re.I
        ),
    ),
)
_WHOLE = re.compile(
    r"\b(?:not|n't|never|isn't|without|no) (?:\w{1,12} )?(?:paged|paging|block manager|blocks)\b"
    r"|\b(?:unpaged|non-paged|nonpaged)\b"
    r"|\b(?:per|each|every|for each|for every|one per) (?:slot|instance|session)\b"
    r"|\bcontiguous(?:ly)?\b[^.\n]{0,30}\b(?:cache|kv|tensor)"
    r"|\b(?:kv|cache)\b[^.\n]{0,30}\bcontiguous|\b(?:full|whole|entire|complete|maximum) (?:session_len"
    r"|length|context|sequence|session|window)\b[^.\n]{0,40}"
    r"\b(?:slot|request|sequence|user|session|instance)|\bStaticCache\b|\bstatic (?:kv )?cache\b",
    re.IGNORECASE,
)
_PAGED = re.compile(
    r"(?<!not )(?<!non-)(?<!un)(?<!n't )\b(?:paged|paging)\b(?! is (?:off|missing))"
    r"|(?<!no )(?<!without )(?<!without a )\b(?:block manager|block table)\b"
    r"|allocated (?:by|in) (?:block|page)s",
    re.IGNORECASE,
)
_OF_REQUESTS = re.compile(
    r"\b(?:requests?|prompts?|users?|each|sequences|conversations)\b[^.\d\n]{0,24}\b(?:have|has|use|uses"
    r"|need|needs|take|takes|are|is|only)\b"
    r"[^.\d\n]{0,16}(\d{1,6}) (?:tokens?|toks?)\b",
    re.IGNORECASE,
)
_USED = re.compile(
    r"\b(\d{1,7})\s?(?:tokens? )?(?:in|input"
    r"|prompt)\b\s?(?:tokens?)?\s?[,/+&]?\s?(?:and )?(\d{1,7})\s?(?:tokens? )?(?:out|output|generated)\b",
    re.IGNORECASE,
)


class SlotCacheScanner:
    """Settings and shape of a contiguous cache in sentences and lists."""

    kind = "engine-config"
    clues = (
        "session_len", "max_seq_len", "max_length", "max_len", "n_ctx", "ctx", "context", "Context", "equence length",
        "slot", "Slot", "instance", "max_batch_size", "atch size", "atch_size", "n_parallel", "aged", "contiguous",
        "StaticCache", "tatic cache", "tatic KV cache", "tatic kv cache", "layers", "kv head", "KV head",
        "head dim", "head_dim",
        "block manager", " tokens", " in,", " in /", " out)",
    )  # fmt: skip

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._line = 0
        self._is_whole = False
        self._is_paged = False
        self._is_given = False

    @property
    def is_open(self) -> bool:
        """Never: figures may stand in any line."""
        return False

    def line(self, number: int, text: str) -> None:
        """Take the figures of one line."""
        line = text[:_MOST_LINE]
        self._is_whole = self._is_whole or _WHOLE.search(line) is not None
        self._is_paged = self._is_paged or _PAGED.search(line) is not None
        self._line = self._line or number
        if (product := _PRODUCT.search(line)) is not None:
            self._take("instances", product[1], product[2])
            self._take("model_len", product[3], product[4])
        for name, form in (("model_len", _LENGTH), ("instances", _SLOTS)):
            if (found := form.search(line)) is not None:
                groups = found.groups()
                place = 0 if groups[0] is not None else 2
                self._take(name, groups[place], groups[place + 1] or "")
        for name, form in _SHAPE:
            if (shape := form.search(line)) is not None:
                self._take(name, shape[1] or shape[2], "")
        if (used := _USED.search(line)) is not None:
            self._take("request_tokens", str(int(used[1]) + int(used[2])), "")
        elif (each := _OF_REQUESTS.search(line)) is not None:
            self._take("request_tokens", each[1], "")

    def drain(self) -> Iterator[TableBatch]:
        """The settings, once the text is over."""
        if self._is_given:
            self._is_given = False
            told = {name: f"{amount:.0f}" for name, amount in self._told.items()} | {"cache_kind": "contiguous"}
            rows = [
                {"setting": name, "spelled": name, "told": amount, "said_by": "log", "line_id": self._line}
                for name, amount in told.items()
            ]
            yield batch_of("engine_setting", rows, self.kind)

    def facts(self) -> SourceFacts | None:
        """A description; None where the cache is paged, or slots and their length are not both told."""
        is_told = self._told.get("model_len", 0) > 0 and self._told.get("instances", 0) > 1
        self._is_given = is_told and self._is_whole and not self._is_paged
        return SourceFacts(self.kind, "cache of whole slots", is_complete=True) if self._is_given else None

    def _take(self, name: str, amount: str, thousands: str = "") -> None:
        if amount:
            value = float(amount.replace(",", "")) * (1000 if thousands else 1)
            if value < _MOST:
                self._told.setdefault(name, value)
