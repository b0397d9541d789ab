"""JSON, YAML and INI from strangers as plain values, bounded.

No aliases are multiplied, no tags built, no depth is without end.
"""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from doctor.formats.json_escapes import with_whole_characters
from doctor.readers.evidence_file import open_evidence
from doctor.readers.protocol import Progress, no_progress

MOST_BYTES = 8 * 2**20
MOST_YAML_BYTES = 2**20
MOST_VALUES = 100_000
MOST_DEPTH = 24

_PARAMETER = re.compile(
    r"""key:\s{0,20}["']([\w.]{1,80})["'],?\s{0,40}value:?\s{0,20}\{\s{0,40}string_value:\s{0,20}["']([^"'\n]{0,200})["']"""
)


class TooMuchError(Exception):
    """The document is deeper or has more values than any configuration."""


def contents_of(path: Path, progress: Progress = no_progress) -> bytes | None:
    """The whole file, unpacked; None where it is larger than any configuration."""
    found = bytearray()
    for chunk in open_evidence(path).chunks(progress):
        found += chunk
        if len(found) > MOST_BYTES:
            return None
    return bytes(found)


def json_values(text: bytes) -> list[Any] | None:
    """The values of a JSON document, or of JSON lines; None where it is neither.

    Programs that append a line for each run are stopped within one, or say something in between: a few lines that are
    none do not hide the others.
    """
    text = with_whole_characters(text)
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    found: list[Any] = []
    strange_count = 0
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            strange_count += 1
            if not found:
                return None
    return found if found and strange_count <= max(1, len(found) // 4) else None


def yaml_value(text: bytes) -> Any:
    """The first document of a YAML file as dictionaries, lists and strings; None where it is no YAML.

    Nodes are composed, never constructed: tags build nothing, and an alias is visited within one common budget.
    """
    if len(text) > MOST_YAML_BYTES:
        return None
    try:
        written = with_whole_characters(text).decode("utf-8", errors="replace")
        node = yaml.compose(written, Loader=yaml.SafeLoader)
        return None if node is None else _plain(node, _Budget(), MOST_DEPTH)
    except (yaml.YAMLError, ValueError, RecursionError, TooMuchError):
        return None


def ini_value(text: bytes) -> dict[str, dict[str, str]] | None:
    """The sections of an INI file as dictionaries of strings; None where it is none."""
    if len(text) > MOST_YAML_BYTES:
        return None
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text.decode("utf-8", errors="replace"))
    except (configparser.Error, ValueError):
        return None
    return {name: dict(parser.items(name)) for name in parser.sections()} or None


def protobuf_parameters(text: bytes) -> dict[str, str] | None:
    """The `parameters` of a Triton `config.pbtxt` as a dictionary of strings; None where there are none."""
    if len(text) > MOST_YAML_BYTES:
        return None
    found = _PARAMETER.findall(text.decode("utf-8", errors="replace"))
    return dict(found) or None


def flattened(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield `(dotted name, value)` of every scalar and every list of scalars in nested dictionaries.

    Raises:
        TooMuchError: over a hundred thousand values, or too deep.
    """
    yield from _walk(value, "", _Budget(), MOST_DEPTH)


class _Budget:
    def __init__(self) -> None:
        self._left = MOST_VALUES

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooMuchError


def _plain(node: Any, budget: _Budget, depth: int) -> Any:
    budget.spend()
    if depth == 0:
        raise TooMuchError
    if node.id == "mapping":
        return {
            str(key.value) if key.id == "scalar" else "": _plain(value, budget, depth - 1) for key, value in node.value
        }
    if node.id == "sequence":
        return [_plain(entry, budget, depth - 1) for entry in node.value]
    return str(node.value)


def _walk(value: Any, prefix: str, budget: _Budget, depth: int) -> Iterator[tuple[str, Any]]:
    budget.spend()
    if depth == 0:
        raise TooMuchError
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, f"{prefix}.{key}" if prefix else str(key), budget, depth - 1)
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        for entry in value:
            yield from _walk(entry, prefix, budget, depth - 1)
    elif prefix:
        yield prefix, value
