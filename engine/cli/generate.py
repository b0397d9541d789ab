"""`python -m engine generate`: a file of requests in, a file of answers out."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from engine.cli.engine_options import engine_options, read_config
from engine.cli.profile_options import ProfileRequest, profile_options, read_profile
from engine.cli.request_file import PromptRequest, check_writable, read_requests, write_answers
from engine.logs import log_to_stderr


@click.command()
@click.option("--requests", "requests_path", type=Path, required=True, help="One JSON object a line.")
@click.option("--out", "out_path", type=Path, required=True, help="Where the answers go, in the same order.")
@profile_options
@engine_options
def generate(requests_path: Path, out_path: Path, **options: Any) -> None:
    """Answer the requests of a file.

    A line of the input: {"prompt": "text"} or {"prompt_token_ids": [1, 2]}, with sampling options beside it such as
    "max_new_tokens", "temperature", "seed", "stop", "ignore_eos".
    """
    profile = read_profile(options)
    config = read_config(options)
    requests = read_requests(requests_path)
    check_writable(out_path)
    log_to_stderr()
    write_answers(out_path, _answers(config, requests, profile))


def _answers(config: Any, requests: list[PromptRequest], profile: ProfileRequest | None) -> list[Any]:
    from engine.llm import LLM  # noqa: PLC0415  torch is not needed to read options

    llm = LLM.from_config(config)
    with nullcontext() if profile is None else profile.capture(llm.core.loop):
        flat = llm.generate([request.prompt for request in requests], [request.params for request in requests])
    answers = iter(flat)
    return [[next(answers) for _ in range(request.params.n)] for request in requests]
