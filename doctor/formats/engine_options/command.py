"""Command lines that start an engine: which engine, and its options."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from doctor.formats.engine_options.pairs import pairs

MOST_WORDS = 2000

_PROGRAMS = (
    (
        "vllm",
        re.compile(
            r"\bvllm\s+(?:serve|bench\s+(?:latency|throughput))\b|\bvllm\.entrypoints\.[\w.]{0,60}api_server\b|vllm/vllm-openai\b"
        ),
    ),
    (
        "sglang",
        re.compile(
            r"\bsglang\.(?:launch_server|bench_latency|bench_one_batch|bench_offline_throughput)\b|\bsglang\s+serve\b"
        ),
    ),
    ("tensorrt-llm", re.compile(r"\btrtllm-serve\b|\btrtllm-bench\b|\btrtllm-build\b")),
    ("tgi", re.compile(r"\btext-generation-launcher\b|huggingface/text-generation-inference\b")),
    ("lmdeploy", re.compile(r"\blmdeploy\s+serve\s+api_server\b")),
    ("engine", re.compile(r"-m\s+engine\s+(?:serve|generate|bench)\b")),
)
CLUES = (
    "vllm serve",
    "vllm.entrypoints.",
    "vllm/vllm-openai",
    "vllm bench ",
    "sglang.launch_server",
    "sglang.bench_latency",
    "sglang.bench_one_batch",
    "sglang.bench_offline_throughput",
    "sglang serve",
    "trtllm-",
    "text-generation-launcher",
    "huggingface/text-generation-inference",
    "lmdeploy serve",
    "-m engine ",
)
"""Literal parts of every command line that is known here."""
_VARIABLE = re.compile(r"(?:^|\s)([A-Z][A-Z0-9_]{2,60})=([^\s\"'$]{1,200})")


class Command(NamedTuple):
    """What a command line says.

    Attributes:
        engine: as in `doctor.formats.engine_options.ENGINES`.
        options: name and value of each option; an empty value is a flag. Environment variables before the program too.
    """

    engine: str
    options: tuple[tuple[str, str], ...]


def command_of(line: str) -> Command | None:
    """The command line of an engine; None where the line starts none."""
    for engine, program in _PROGRAMS:
        found = program.search(line)
        if found is not None:
            before, after = line[: found.start()], line[found.end() :]
            if before.count("`") % 2:  # within prose, up to the end of the quoted command
                after = after.partition("`")[0]
            variables = tuple((name, value) for name, value in _VARIABLE.findall(before))
            return Command(engine, (*variables, *options_of(_words(after))))
    return None


def options_of(words: list[str]) -> tuple[tuple[str, str], ...]:
    """Options among words: `--name value`, `--name=value`, `--flag`, `-tp 2`; several values are joined by commas."""
    options: list[tuple[str, str]] = []
    name, values = "", list[str]()
    for word in words[:MOST_WORDS]:
        if re.match(r"--?[A-Za-z]", word):
            if name:
                options.append((name, ",".join(values)))
            name, _, value = word.partition("=")
            values = [value] if value else []
        elif name:
            values.append(word)
    if name:
        options.append((name, ",".join(values)))
    return tuple(entry for option in options for entry in _with_parts(*option))


def _with_parts(name: str, value: str) -> list[tuple[str, str]]:
    """An option whose value is JSON gives its parts too: `--speculative-config '{"method": "ngram"}'`."""
    whole = name.lstrip("-").replace("-", "_")
    if not value.startswith("{"):
        return [(name, value)]
    return [(name, value), *((f"{whole}.{part}", inner) for part, inner in pairs(value))]


def _words(text: str) -> list[str]:
    cut = re.split(r"\s(?:&&|\|\||[;|>&])", text, maxsplit=1)[0]
    try:
        return shlex.split(cut.replace("\\", " "))
    except ValueError:  # a quote without its end
        return cut.split()
