"""A real byte-level tokenizer of 259 tokens, as a checkpoint carries it."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def save_tokenizer(folder: Path) -> Path:
    """Add the tokenizer to a checkpoint folder: ids 0 to 2 are padding, beginning and end, then one id a byte."""
    special = ["<pad>", "<s>", "</s>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*special, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", model_max_length=10**6
    )
    fast.save_pretrained(folder)
    return folder
