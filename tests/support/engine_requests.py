"""Mixed greedy requests, and what transformers answers to them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine import LLM, SamplingParams
from engine.benchmark import Measurement, TimedRequest, measure

TokenIds = tuple[int, ...]


@dataclass(frozen=True)
class MixedRequests:
    """Prompts with lengths of their answers, and the answers of transformers, one prompt at a time in fp32."""

    prompts: list[TokenIds]
    lengths: list[int]
    answers: list[TokenIds]

    @property
    def params(self) -> list[SamplingParams]:
        return [greedy_params(length) for length in self.lengths]


def greedy_params(length: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_new_tokens=length, ignore_eos=True)


def mixed_requests(
    model: Any,
    num_requests: int,
    longest_prompt: int = 40,
    longest_answer: int = 12,
    num_shared: int = 20,
    seed: int = 0,
) -> MixedRequests:
    """Draw prompts of many lengths; every second one begins with the same `num_shared` tokens."""
    numbers = random.Random(seed)
    vocab_size = model.config.vocab_size
    shared = tuple(numbers.randrange(3, vocab_size) for _ in range(num_shared))
    prompts, lengths = [], []
    for index in range(num_requests):
        own = tuple(numbers.randrange(3, vocab_size) for _ in range(numbers.randint(1, longest_prompt)))
        prompts.append(shared + own if index % 2 else own)
        lengths.append(numbers.randint(1, longest_answer))
    answers = [transformers_answer(model, prompt, length) for prompt, length in zip(prompts, lengths, strict=True)]
    return MixedRequests(prompts, lengths, answers)


def transformers_answer(model: Any, prompt: TokenIds, length: int) -> TokenIds:
    """What `generate` of transformers adds to a prompt, greedy, without an end of sequence."""
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=length,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(out[0, len(prompt) :].tolist())


def run(folder: Path, requests: MixedRequests, **options: Any) -> tuple[list[TokenIds], LLM]:
    """Answers of the engine in fp32 on the CPU, and the engine with its counters."""
    llm = LLM(str(folder), device="cpu", dtype="float32", **options)
    answers = llm.generate(requests.prompts, requests.params)
    return [answer.token_ids for answer in answers], llm


def measured(folder: Path, requests: MixedRequests, **options: Any) -> Measurement:
    """A measurement of the engine in fp32 on the CPU unless the options say otherwise."""
    llm = LLM(str(folder), **{"device": "cpu", "dtype": "float32", **options})
    pairs = zip(requests.prompts, requests.params, strict=True)
    return measure(llm, [TimedRequest(prompt, params) for prompt, params in pairs])
