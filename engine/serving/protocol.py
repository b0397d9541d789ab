"""What clients send, as OpenAI defines it, and what is understood beyond it (`top_k`, `min_p`, `deadline_s` ...).

A field that would change the answer and is not supported is refused, never ignored. Source: the OpenAI API reference,
Completions and Chat Completions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.sampling_params import SamplingParams

TokenId = Annotated[int, Field(ge=0)]


class StreamOptions(BaseModel):
    """`include_usage`: one more chunk at the end, with the token counts."""

    include_usage: bool = False


class _Sampled(BaseModel):
    """What both endpoints share."""

    model_config = ConfigDict(extra="forbid")

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int = Field(default=1, ge=1, le=128)
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    user: str | None = None
    # beyond OpenAI
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool = False
    stop_token_ids: list[TokenId] = Field(default_factory=list)
    deadline_s: float | None = Field(default=None, gt=0)

    def sampling(self, max_new_tokens: int, logprobs: int | None) -> SamplingParams:
        """The engine's options.

        Raises:
            ConfigError: a value is out of range.
        """
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        given: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
        }
        return SamplingParams(
            max_new_tokens=max_new_tokens,
            n=self.n,
            seed=None if self.seed is None else self.seed % 2**63,
            logprobs=logprobs,
            stop=stop,
            stop_token_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
            **{name: value for name, value in given.items() if value is not None},
        )


class CompletionRequest(_Sampled):
    """`POST /v1/completions`."""

    prompt: str | list[str] | list[TokenId] | list[list[TokenId]]
    max_tokens: int = Field(default=16, ge=1)
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: Literal[False] = False
    best_of: Literal[1] | None = None
    suffix: None = None

    def prompts(self) -> list[str | list[int]]:
        """One or more prompts, each a text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if all(isinstance(item, int) for item in self.prompt):
            return [list(self.prompt)]  # type: ignore[arg-type]  # a list of token ids is one prompt
        return list(self.prompt)  # type: ignore[arg-type]


class ChatMessage(BaseModel):
    """One turn of a conversation; text only."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    name: str | None = None

    def text(self) -> str:
        """The content as one text.

        Raises:
            ValueError: a part is no text.
        """
        if isinstance(self.content, str):
            return self.content
        if any(part.get("type") != "text" for part in self.content):
            raise ValueError("only parts of type 'text' are supported")
        return "".join(str(part.get("text", "")) for part in self.content)


class ChatRequest(_Sampled):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        return self
