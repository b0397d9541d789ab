from __future__ import annotations

import pytest

pytest.importorskip("tokenizers", reason="needs the extra 'engine'")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.execution.detokenizer import Detokenizer, StopStrings

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


class ByteTokenizer:
    """A real byte-level tokenizer with one token a byte, behind the interface of transformers."""

    def __init__(self) -> None:
        vocab = {letter: index for index, letter in enumerate(ALPHABET)}
        self._tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._tokenizer.decoder = decoders.ByteLevel()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text


def test_pieces_add_up_to_the_text_and_no_letter_is_cut() -> None:
    tokenizer = ByteTokenizer()
    text = "naïve 推理 🚀 end"
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer.encode(text)
    pieces = [detokenizer.add([token], index == len(ids) - 1) for index, token in enumerate(ids)]
    assert "".join(pieces) == text
    assert not [piece for piece in pieces if "\ufffd" in piece]


def test_what_is_left_of_a_letter_comes_at_the_end() -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode("推")[:2]
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.add(ids, is_last=False) == ""
    assert detokenizer.add([], is_last=True) == "\ufffd"


def test_a_stop_string_spread_over_pieces_is_found_and_never_shown() -> None:
    stops = StopStrings(["END"])
    shown = [stops.add(piece, is_last=False) for piece in ("abc E", "N", "D tail")]
    assert [passage.text for passage in shown] == ["abc ", "", ""]
    assert [passage.is_stopped for passage in shown] == [False, False, True]


def test_a_beginning_of_a_stop_string_is_shown_once_it_goes_on_otherwise() -> None:
    stops = StopStrings(["END"])
    assert stops.add("abc EN", is_last=False).text == "abc "
    assert stops.add("X", is_last=False).text == "ENX"


def test_a_beginning_of_a_stop_string_is_shown_at_the_end_of_the_text() -> None:
    stops = StopStrings(["END"])
    assert stops.add("abc EN", is_last=True).text == "abc EN"


def test_of_several_stop_strings_the_first_in_the_text_counts() -> None:
    passage = StopStrings(["world", "lo"]).add("hello world", is_last=False)
    assert (passage.text, passage.is_stopped) == ("hel", True)
