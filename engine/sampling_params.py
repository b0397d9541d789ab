"""How the next token of a request is chosen, and when the request ends."""

from dataclasses import dataclass, fields
from typing import Any

from engine.errors import ConfigError

MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Choice of tokens and end of one request; checked when made.

    Attributes:
        max_new_tokens: tokens to generate at most, >= 1.
        temperature: 0 is greedy; else logits are divided by it.
        top_k: keep the k most probable tokens; 0 keeps all.
        top_p: keep the smallest set of tokens with at least this probability, in (0, 1].
        min_p: drop tokens less probable than this share of the most probable one, in [0, 1].
        repetition_penalty: divides the positive and multiplies the negative logits of tokens seen before; 1 is none.
        presence_penalty: subtracted once from the logits of tokens seen in the output.
        frequency_penalty: subtracted from the logits once for each occurrence in the output.
        seed: makes a sampled request repeatable, whatever else is in its batch; None draws one.
        logprobs: number of most probable tokens to report beside each chosen token; None reports nothing.
        stop: texts that end the request; the text is cut before them.
        stop_token_ids: tokens that end the request, beside the model's own end of sequence.
        ignore_eos: the model's end of sequence does not end the request.
        n: number of outputs to draw for the same prompt.
    """

    max_new_tokens: int = 16
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logprobs: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            ConfigError: a value is out of range or of the wrong type.
        """
        for name, is_good, wanted in self._checks():
            if not is_good:
                raise ConfigError(f"{name} must be {wanted}, not {getattr(self, name)!r}")

    def _checks(self) -> tuple[tuple[str, bool, str], ...]:
        return (
            ("max_new_tokens", _is_int(self.max_new_tokens) and self.max_new_tokens >= 1, "an integer >= 1"),
            ("temperature", _is_number(self.temperature) and 0 <= self.temperature < 1e6, "a number >= 0"),
            ("top_k", _is_int(self.top_k) and self.top_k >= 0, "an integer >= 0"),
            ("top_p", _is_number(self.top_p) and 0 < self.top_p <= 1, "a number in (0, 1]"),
            ("min_p", _is_number(self.min_p) and 0 <= self.min_p <= 1, "a number in [0, 1]"),
            ("repetition_penalty", _is_number(self.repetition_penalty) and self.repetition_penalty > 0, "above 0"),
            ("presence_penalty", _is_penalty(self.presence_penalty), "a number in [-2, 2]"),
            ("frequency_penalty", _is_penalty(self.frequency_penalty), "a number in [-2, 2]"),
            ("seed", self.seed is None or (_is_int(self.seed) and 0 <= self.seed < 2**63), "an integer in [0, 2**63)"),
            ("logprobs", self.logprobs is None or _is_logprobs(self.logprobs), f"an integer in [0, {MAX_LOGPROBS}]"),
            ("stop", _is_tuple_of(self.stop, str) and all(self.stop), "a tuple of texts, none empty"),
            ("stop_token_ids", _is_tuple_of(self.stop_token_ids, int), "a tuple of integers"),
            ("ignore_eos", isinstance(self.ignore_eos, bool), "true or false"),
            ("n", _is_int(self.n) and self.n >= 1, "an integer >= 1"),
        )

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "SamplingParams":
        """Build from a decoded JSON object, whose lists become tuples.

        Raises:
            ConfigError: an option is unknown or out of range.
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise ConfigError(f"unknown sampling option {unknown[0]!r}; known: {', '.join(sorted(known))}")
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
        if isinstance(values.get("stop"), str):
            values["stop"] = (values["stop"],)
        return cls(**values)

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        """Whether the logits depend on which tokens were seen before."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    # A comparison with itself is false for NaN only.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value  # noqa: PLR0124


def _is_penalty(value: object) -> bool:
    return _is_number(value) and -2 <= value <= 2  # type: ignore[operator]


def _is_logprobs(value: object) -> bool:
    return _is_int(value) and 0 <= value <= MAX_LOGPROBS  # type: ignore[operator]


def _is_tuple_of(value: object, kind: type) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, kind) and not isinstance(item, bool) for item in value)
