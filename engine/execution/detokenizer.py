"""Text of a request as its tokens come, and the stop strings in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Text of one request, a piece at a time.

    A token's text may depend on the token before it (a space), and one letter may be spread over several tokens. So the
    text is the difference between two decodings that begin a few tokens back, and a piece that ends within a letter is
    held back until the letter is whole.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Start with no token.

        Args:
            tokenizer: of `transformers`.
        """
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        self._begin = 0
        self._read = 0

    def add(self, token_ids: Sequence[int], is_last: bool) -> str:
        """The text that these tokens add; everything that was held back comes with the last ones."""
        self._token_ids += token_ids
        before = self._decode(self._begin, self._read)
        now = self._decode(self._begin, len(self._token_ids))
        if now.endswith(_INCOMPLETE) and not is_last:
            return ""
        self._begin, self._read = self._read, len(self._token_ids)
        return now[len(before) :]

    def _decode(self, begin: int, end: int) -> str:
        text: str = self._tokenizer.decode(self._token_ids[begin:end], skip_special_tokens=True)
        return text


@dataclass(frozen=True, slots=True)
class Passage:
    """Text that may go to the reader, and whether a stop string was found behind it."""

    text: str
    is_stopped: bool


class StopStrings:
    """Watches the text of one request for stop strings, which may be spread over several pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def add(self, piece: str, is_last: bool) -> Passage:
        """Take in a piece; what could still become a stop string is held back until it cannot, or the text ends."""
        text = self._held + piece
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self._held = ""
            return Passage(text[: min(places)], is_stopped=True)
        keep = 0 if is_last else max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return Passage(text[: len(text) - keep], is_stopped=False)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
