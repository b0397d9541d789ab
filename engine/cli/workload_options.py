"""Options that describe what `bench` and `strategies` run: a file of requests, or random prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from engine.cli.request_file import PromptRequest, read_requests

if TYPE_CHECKING:
    from engine.benchmark import TimedRequest, Workload

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LENGTH = click.IntRange(1)


def workload_options(function: _Function) -> _Function:
    """Add the options; `read_workload` takes them out again."""
    options = (
        click.option("--requests", type=Path, help="One JSON object a line; else prompts are random."),
        click.option("--num-requests", type=_LENGTH, default=64, show_default=True),
        click.option("--prompt-tokens", type=(_LENGTH, _LENGTH), default=(16, 256), help="Shortest, longest."),
        click.option("--output-tokens", type=(_LENGTH, _LENGTH), default=(16, 128), help="Shortest, longest."),
        click.option("--shared-tokens", type=click.IntRange(0), default=0, help="Common beginning of all prompts."),
        click.option("--rate", type=click.FloatRange(0), default=0.0, help="Requests a second; 0 is all at once."),
        click.option("--workload-seed", type=click.IntRange(0), default=0),
    )
    for option in reversed(options):
        function = option(function)
    return function


class WorkloadChoice:
    """What was asked for; read before a model is loaded, so that a bad file fails at once."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Take the options of a workload out of all the options of a command.

        Raises:
            ConfigError: the file is unusable.
            click.UsageError: a shortest length is above the longest.
        """
        path = options.pop("requests")
        self._values = {name: options.pop(name) for name in _NAMES}
        for name in ("prompt_tokens", "output_tokens"):
            shortest, longest = self._values[name]
            if shortest > longest:
                raise click.UsageError(f"--{name.replace('_', '-')}: the shortest is {shortest}, the longest {longest}")
        self._requests: list[PromptRequest] | None = None if path is None else read_requests(path)

    def requests(self, vocab_size: int) -> list[TimedRequest]:
        """The requests for a model of this vocabulary."""
        from engine.benchmark import TimedRequest, Workload, timed_requests  # noqa: PLC0415  brings torch

        if self._requests is not None:
            return [TimedRequest(request.prompt, request.params) for request in self._requests]
        values = self._values
        workload: Workload = Workload(
            num_requests=values["num_requests"],
            prompt_tokens=values["prompt_tokens"],
            output_tokens=values["output_tokens"],
            shared_tokens=values["shared_tokens"],
            requests_per_s=values["rate"],
            seed=values["workload_seed"],
        )
        return timed_requests(workload, vocab_size)


_NAMES = ("num_requests", "prompt_tokens", "output_tokens", "shared_tokens", "rate", "workload_seed")
