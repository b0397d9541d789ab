"""Arrival traces for the simulation: read from a file, or drawn at random around a peak of load."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from engine.errors import ConfigError

INTERACTIVE = "interactive"
BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as seen from outside. Times in microseconds since the start of the trace.

    `output_tokens` is what the answer will have; the scheduler only knows the limit `max_new_tokens`. Requests with
    the same `prefix_id` share their first `prefix_tokens` tokens.
    """

    at_us: int
    prompt_tokens: int
    output_tokens: int
    max_new_tokens: int
    kind: str = INTERACTIVE
    deadline_us: int | None = None
    prefix_id: int = 0
    prefix_tokens: int = 0


def read_arrivals(path: Path) -> list[Arrival]:
    """Read a CSV file with the columns arrival_s, prompt_tokens and output_tokens, and optionally deadline_s.

    `deadline_s` counts from the start of the trace, as `arrival_s` does; empty is none.

    Raises:
        ConfigError: the file cannot be read, lacks a column, or a value is no number above zero.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            arrivals = [_parse(row) for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: not an arrival trace ({type(error).__name__}: {error})") from error
    return sorted(arrivals, key=lambda arrival: arrival.at_us)


def _parse(row: dict[str, str]) -> Arrival:
    prompt_tokens, output_tokens = int(row["prompt_tokens"]), int(row["output_tokens"])
    if prompt_tokens < 1 or output_tokens < 1:
        raise ValueError("token counts must be at least 1")
    deadline_us = round(float(row["deadline_s"]) * 1_000_000) if row.get("deadline_s") else None
    at_us = round(float(row["arrival_s"]) * 1_000_000)
    return Arrival(at_us, prompt_tokens, output_tokens, output_tokens, deadline_us=deadline_us)


@dataclass(frozen=True, slots=True)
class PeakLoad:
    """Traffic with a peak in its middle third: people who wait for an answer, and jobs that can wait.

    `rate_per_s` is the arrival rate outside the peak, `peak_factor` how many times higher it is inside. An interactive
    request is promised its answer `slack_s` plus `slack_per_token_s` per output token after its arrival, a batch
    request after `batch_slack_s`. Lengths are drawn between two bounds; limits are what the callers ask for.
    """

    num_requests: int = 2000
    rate_per_s: float = 1.2
    peak_factor: float = 3.0
    batch_share: float = 0.2
    num_prefixes: int = 8
    prefix_tokens: int = 256
    interactive_prompt: tuple[int, int] = (60, 700)
    interactive_output: tuple[int, int] = (20, 400)
    interactive_limit: int = 1024
    batch_prompt: tuple[int, int] = (2000, 6000)
    batch_output: tuple[int, int] = (400, 1600)
    batch_limit: int = 2048
    slack_s: float = 3.0
    slack_per_token_s: float = 0.1
    batch_slack_s: float = 600.0

    def draw(self, seed: int) -> list[Arrival]:
        """The arrivals of one seed, in order of time."""
        random = Random(seed)  # noqa: S311  # a load generator, not a secret
        return [self._arrival(random, at_us) for at_us in self._times(random)]

    def peak_us(self, arrivals: Sequence[Arrival]) -> tuple[int, int]:
        """Start and end of the peak within drawn arrivals."""
        return arrivals[self.num_requests // 3].at_us, arrivals[2 * self.num_requests // 3].at_us

    def _times(self, random: Random) -> Iterator[int]:
        at_s = 0.0
        for index in range(self.num_requests):
            is_peak = self.num_requests // 3 <= index < 2 * self.num_requests // 3
            at_s += random.expovariate(self.rate_per_s * (self.peak_factor if is_peak else 1.0))
            yield round(at_s * 1_000_000)

    def _arrival(self, random: Random, at_us: int) -> Arrival:
        if random.random() < self.batch_share:
            return self._batch(random, at_us)
        return self._interactive(random, at_us)

    def _batch(self, random: Random, at_us: int) -> Arrival:
        prompt, output = _length(random, self.batch_prompt), _length(random, self.batch_output)
        deadline_us = at_us + round(self.batch_slack_s * 1_000_000)
        return Arrival(at_us, prompt, output, self.batch_limit, BATCH, deadline_us)

    def _interactive(self, random: Random, at_us: int) -> Arrival:
        prompt = self.prefix_tokens + _length(random, self.interactive_prompt)
        output = _length(random, self.interactive_output)
        deadline_us = at_us + round((self.slack_s + self.slack_per_token_s * output) * 1_000_000)
        prefix_id = 1 + random.randrange(self.num_prefixes)
        limit = self.interactive_limit
        return Arrival(at_us, prompt, output, limit, INTERACTIVE, deadline_us, prefix_id, self.prefix_tokens)


def _length(random: Random, bounds: tuple[int, int]) -> int:
    """A length between two bounds, short ones more often than long ones."""
    low, high = bounds
    return round(low * float((high / low) ** random.random()))
