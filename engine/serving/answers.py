"""Updates of the engine as OpenAI's JSON objects, whole or in pieces."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from engine.core import Update
    from engine.execution.step_results import TokenLogprobs


@dataclass(slots=True)
class Usage:
    """Tokens of one HTTP request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def as_json(self) -> dict[str, int]:
        """OpenAI's object `usage`."""
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }


@dataclass(slots=True)
class Whole:
    """What has come for one choice."""

    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, update: Update) -> None:
        """Take in an update."""
        self.texts.append(update.text)
        self.logprobs += update.logprobs
        if update.finish_reason is not None:
            self.finish_reason = update.finish_reason.value


class Shape(Protocol):
    """How an endpoint words its choices."""

    prefix: str
    whole_object: str
    piece_object: str

    def whole(self, index: int, choice: Whole) -> dict[str, Any]:
        """A choice at its end."""
        ...

    def piece(self, index: int, update: Update, is_first: bool) -> dict[str, Any]:
        """A choice's news."""
        ...


class TokenTexts(Protocol):
    """Texts of single tokens, for log probabilities."""

    def __call__(self, token_id: int) -> str:
        """Text of one token."""
        ...


class CompletionShape:
    """`text_completion`."""

    prefix = "cmpl"
    whole_object = piece_object = "text_completion"

    def __init__(self, token_text: TokenTexts) -> None:
        self._token_text = token_text

    def whole(self, index: int, choice: Whole) -> dict[str, Any]:
        """A choice at its end."""
        return self._choice(index, "".join(choice.texts), choice.logprobs, choice.finish_reason)

    def piece(self, index: int, update: Update, is_first: bool) -> dict[str, Any]:
        """A choice's news."""
        reason = None if update.finish_reason is None else update.finish_reason.value
        return self._choice(index, update.text, update.logprobs, reason)

    def _choice(
        self, index: int, text: str, logprobs: Sequence[TokenLogprobs], finish_reason: str | None
    ) -> dict[str, Any]:
        listed = None
        if logprobs:
            listed = {
                "tokens": [self._token_text(one.token_id) for one in logprobs],
                "token_logprobs": [one.logprob for one in logprobs],
                "top_logprobs": [{self._token_text(token): value for token, value in one.top} for one in logprobs],
                "text_offset": [],
            }
        return {"index": index, "text": text, "logprobs": listed, "finish_reason": finish_reason}


class ChatShape:
    """`chat.completion` and `chat.completion.chunk`."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    piece_object = "chat.completion.chunk"

    def __init__(self, token_text: TokenTexts) -> None:
        self._token_text = token_text

    def whole(self, index: int, choice: Whole) -> dict[str, Any]:
        """A choice at its end."""
        return {
            "index": index,
            "message": {"role": "assistant", "content": "".join(choice.texts)},
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": choice.finish_reason,
        }

    def piece(self, index: int, update: Update, is_first: bool) -> dict[str, Any]:
        """A choice's news."""
        delta = {"role": "assistant", "content": update.text} if is_first else {"content": update.text}
        reason = None if update.finish_reason is None else update.finish_reason.value
        return {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(update.logprobs),
            "finish_reason": reason,
        }

    def _logprobs(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        return {
            "content": [
                self._token(one.token_id, one.logprob)
                | {"top_logprobs": [self._token(token, value) for token, value in one.top]}
                for one in logprobs
            ]
        }

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        text = self._token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields around the choices, the same in every piece of one answer."""

    shape: Shape
    model: str
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, choices: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
        """The answer in one object."""
        return self._object(self.shape.whole_object, choices) | {"usage": usage.as_json()}

    def piece(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """One server-sent event of a streamed answer."""
        return self._object(self.shape.piece_object, choices)

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{self.shape.prefix}-{self.key}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }
