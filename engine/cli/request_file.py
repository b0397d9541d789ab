"""Requests and answers as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import ConfigError
from engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from engine.llm import Answer


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """One line of the input: a prompt, as text or token ids, and how to answer it."""

    prompt: str | tuple[int, ...]
    params: SamplingParams


def read_requests(path: Path) -> list[PromptRequest]:
    """Read a file with one JSON object a line: `prompt` or `prompt_token_ids`, and options of `SamplingParams`.

    Raises:
        ConfigError: the file cannot be read, or a line is unusable; the message names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {reason}") from error
    requests = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                requests.append(_parse(line))
            except ConfigError as error:
                raise ConfigError(f"{path}, line {number}: {error}") from error
    if not requests:
        raise ConfigError(f"{path} holds no request: write one JSON object a line")
    return requests


def write_answers(path: Path, answers: Iterable[Sequence[Answer]]) -> None:
    """Write one JSON object for each request; with `n` above 1 it lists all answers under `answers`.

    Raises:
        ConfigError: the file cannot be written.
    """
    lines = [json.dumps(_line(group), ensure_ascii=False) for group in answers]
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """Find out before the work is done whether the answers can be written.

    Raises:
        ConfigError: the folder does not exist, or the path is a folder.
    """
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise ConfigError(f"{path} cannot be written: it is a folder, or its folder does not exist")


def _parse(line: str) -> PromptRequest:
    try:
        options: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}") from error
    if not isinstance(options, dict):
        raise ConfigError(f"a request is a JSON object, not {type(options).__name__}")
    has_text, has_ids = "prompt" in options, "prompt_token_ids" in options
    if has_text == has_ids:
        raise ConfigError("give either prompt or prompt_token_ids")
    prompt = options.pop("prompt") if has_text else _token_ids(options.pop("prompt_token_ids"))
    if has_text and not isinstance(prompt, str):
        raise ConfigError("prompt must be a text")
    return PromptRequest(prompt, SamplingParams.from_options(options))


def _token_ids(value: Any) -> tuple[int, ...]:
    is_list = isinstance(value, list) and all(isinstance(token, int) and not isinstance(token, bool) for token in value)
    if not is_list or not value:
        raise ConfigError("prompt_token_ids must be a list of integers, not empty")
    return tuple(value)


def _line(group: Sequence[Answer]) -> dict[str, Any]:
    objects = [_object(answer) for answer in group]
    return objects[0] if len(objects) == 1 else {"answers": objects}


def _object(answer: Answer) -> dict[str, Any]:
    line: dict[str, Any] = {
        "token_ids": list(answer.token_ids),
        "text": answer.text,
        "finish_reason": answer.finish_reason.value,
        "ttft_s": answer.ttft_s,
        "itl_s": list(answer.itl_s),
    }
    if answer.logprobs:
        line["logprobs"] = [
            {"token_id": entry.token_id, "logprob": entry.logprob, "top": [list(pair) for pair in entry.top]}
            for entry in answer.logprobs
        ]
    if answer.error is not None:
        line["error"] = answer.error
    return line
