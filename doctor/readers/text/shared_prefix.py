"""What a note or the command of a load generator says of the prompts: how many tokens all of them begin with.

The longest that is told is kept, as a row of a benchmark without a figure of speed, like what files of requests tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.case.batch import SourceFacts, TableBatch
from doctor.readers.text.engine_lines import number as figure_of
from doctor.readers.text.scanner import batch_of

ROW = 3_000_000
"""Behind the rows of everything else in the same text that tells results."""
MOST_CHARACTERS = 4000
_TOKENS = r"(\d[\d,]{0,9}(?:\.\d{1,3})?)\s?(k)?[\s\-]?(?:tokens?|toks?)\b"
_PREFIX = (
    r"(?:(?:shared|common|same|identical)\s(?:\w{1,20}\s){0,2}?(?:prefix|preamble|beginning)|system[\s\-]prompt)\b"
)
_BEHIND = re.compile(rf"{_PREFIX}[^\d.;|\n]{{0,40}}?{_TOKENS}", re.IGNORECASE)
_BEFORE = re.compile(rf"{_TOKENS}\s(?:of\s|long\s)?(?:the\s|a\s)?{_PREFIX}", re.IGNORECASE)
_WHOLE = re.compile(rf"{_TOKENS}\sin\s(?:all|total)\b", re.IGNORECASE)
_DENIED = re.compile(
    r"\b(?:no|not|never|nothing|without|different|unique|own|each user|per user)\b|n't\b", re.IGNORECASE
)
_OPTION = re.compile(
    r"--(prefix-repetition-prefix-len|random-prefix-len|gsp-system-prompt-len)[ =](\d{1,8})\b", re.IGNORECASE
)
_SPOILED = re.compile(
    r"\b(?:uuid|guid|nonce|timestamps?|time stamps?|the (?:current )?(?:date|time)|request[ _-]?ids?"
    r"|session[ _-]?ids?|user[ _-]?(?:names?|ids?)|trace[ _-]?ids?|random (?:id|number|string|prefix"
    r"|salt))\b",
    re.IGNORECASE,
)
_AT_FRONT = re.compile(
    r"\b(?:starts?|begins?|beginning|first|front|top|prepend\w*|prefix\w*|before|ahead|leading"
    r"|followed by|and then|, then)\b",
    re.IGNORECASE,
)
_SAME = re.compile(
    r"(?:\b(?:same|shared|common|identical|fixed)\b[^.;|\n]{0,30}?"
    rf"{_TOKENS}|{_TOKENS}[^.;|\n]{{0,30}}?\b(?:same|shared|common|identical|fixed|system[\s\-]prompt"
    rf"|instructions|preamble)\b)",
    re.IGNORECASE,
)
BEHIND_TOOL = "prompts-behind"
"""What prompts have in common stands behind something that differs."""
_REST = re.compile(
    r"--(?:prefix-repetition-suffix-len|random-input-len|gsp-question-len)[ =](\d{1,8})\b", re.IGNORECASE
)


class SharedPrefixScanner:
    """Lines that tell the length of a common prefix; only the numbers are kept."""

    kind = "bench-table"
    clues = (
        "hared prefix", "ommon prefix", "same prefix", "dentical prefix", "hared preamble", "ommon preamble",
        "ystem prompt", "ystem-prompt", "-prefix-len", "uuid", "UUID", "timestamp", "time stamp",
        "request id", "request_id",
        "session id", "user name", "user id", "nonce", "random ", "dentical", "same ",
    )  # fmt: skip

    def __init__(self) -> None:
        self._shared: float | None = None
        self._prompt: float | None = None
        self._behind: float | None = None
        self._is_given = False

    @property
    def is_open(self) -> bool:
        """Never: each line stands alone."""
        return False

    def line(self, number: int, text: str) -> None:
        """Look at one line."""
        text = text[:MOST_CHARACTERS]
        self._behind = self._behind or _behind(text)
        told = _of_options(text) or _of_words(text)
        if told is not None and told[0] > (self._shared or 0):
            self._shared, self._prompt = told

    def drain(self) -> Iterator[TableBatch]:
        """The one row, at the end."""
        if self._is_given:
            self._is_given = False
            row = {
                "row_id": ROW,
                "tool": "prompts" if self._behind is None else BEHIND_TOOL,
                "shared_prefix_count": self._behind or self._shared,
                "prompt_token_count": self._prompt,
            }
            yield batch_of("bench_row", [row], self.kind)

    def facts(self) -> SourceFacts | None:
        """The note; None where no line tells a length."""
        self._is_given = self._shared is not None or self._behind is not None
        return SourceFacts(self.kind, "length of the common prefix", is_complete=True) if self._is_given else None


def _of_options(text: str) -> tuple[float, float | None] | None:
    """Tokens of the prefix and of a whole prompt, where a load generator was told both."""
    found = _OPTION.search(text)
    if found is None:
        return None
    shared, rest = float(found[2]), _REST.search(text)
    return shared, None if rest is None else shared + float(rest[1])


def _of_words(text: str) -> tuple[float, float | None] | None:
    """Tokens of the prefix and of a whole prompt, as a sentence tells them."""
    found = _BEHIND.search(text) or _BEFORE.search(text)
    shared = None if found is None or _DENIED.search(text) else _count(found[1], found[2])
    whole = _WHOLE.search(text)
    prompt = None if whole is None else _count(whole[1], whole[2])
    if not shared:
        return None
    return shared, prompt if prompt is not None and prompt >= shared else None


def _behind(text: str) -> float | None:
    """Tokens that all prompts hold, but not first: a name, an id or a time stands before them."""
    if _SPOILED.search(text) is None or _AT_FRONT.search(text) is None:
        return None
    found = _SAME.search(text) or _BEHIND.search(text) or _BEFORE.search(text)
    if found is None:
        return None
    groups = found.groups()
    place = 0 if groups[0] is not None else 2
    return _count(groups[place], groups[place + 1])


def _count(told: str, thousands: str | None) -> float | None:
    """Tokens; `2.4k` is 2,400."""
    amount = figure_of(told)
    return None if amount is None else amount * (1000 if thousands else 1)
