"""What the lines above a benchmark's result say of the run: its heading, or the command of its server."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from doctor.formats.engine_options import command_of, settings_of
from doctor.readers.bench_labels import fields_of

MOST_HEADINGS = 3
_RESULT = re.compile(r"Serving Benchmark Result|[Tt]hroughput: [\d.]")
_PRINTED = re.compile(r"\s{0,8}(?:Accuracy|Invalid|Latency): [\d.]")
_CONTINUED = re.compile(r"\\[ \t]{0,8}\n")
_MODEL = re.compile(r"(?:--model(?:[-_]path)?[ =]|\bserve )\s{0,8}([\w./\-]{2,120})")
_FENCE = re.compile(r"[\s>]{0,12}(?:```|~~~)")
_HEADING = re.compile(r"[\s>#*\-\d.)]{0,16}(.{1,78}?)[\s:*`]{0,8}\Z")
_FIELDS = {
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "data_parallel": "dp",
    "eager": "eager",
    "prefix_cache": "prefix_caching",
    "quantisation": "quantization",
    "spec_tokens": "draft_tokens",
}
_USUAL = {"eager": "false", "prefix_caching": "on", "quantization": "none", "draft_tokens": "0", "tp": "1"}
"""What a run has whose heading or command does not name it, while another one's does."""


def conditions_of(lines: Sequence[str]) -> dict[str, str]:
    """Columns and values out of the lines above a result; those above an earlier result belong to that one."""
    start = max((place + 1 for place, line in enumerate(lines) if _RESULT.search(line)), default=0)
    own = [
        line
        for line in lines[start:]
        if line.strip() and not (_FENCE.match(line) or _PRINTED.match(line) or "=====" in line)
    ]
    told: dict[str, str] = {}
    for line in reversed(_CONTINUED.sub(" ", "\n".join(own)).splitlines()):
        command = command_of(line)
        if command is not None:
            for kept in settings_of(command.engine, command.options):
                if kept.setting in _FIELDS:
                    told.setdefault(_FIELDS[kept.setting], kept.told)
            told.setdefault("server", command.engine)
            if (model := _MODEL.search(line)) is not None:  # the name itself is not kept
                told.setdefault("model", f"{zlib.crc32(model[1].encode()):08x}")
            break
    for line in reversed(own[-MOST_HEADINGS:]):
        heading = _HEADING.match(line)
        if heading is not None:
            for name, value in fields_of(heading[1]):
                told.setdefault(name, value)
    return told


def filled(held: Iterable[tuple[dict[str, Any], dict[str, str]]]) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Rows with their conditions, those that only some of them name filled in with what is usual."""
    rows = list(held)
    named = {name for _, told in rows for name in told} - {"server"}
    for row, told in rows:
        usual = {name: value for name, value in _USUAL.items() if name in named} if told else {}
        yield row, {**usual, **{name: value for name, value in told.items() if name != "server"}}
