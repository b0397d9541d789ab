"""Configuration files: of engines and of models, in YAML, JSON, INI and `config.pbtxt`.

Compose and Kubernetes files count with the command in them.

Only the settings that `doctor.formats.engine_options` lists are kept; of a model, its shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import DamagedEvidenceError
from doctor.formats.engine_options import ENGINES, Setting, command_of, is_undecided, setting_of, settings_of
from doctor.formats.engine_options.command import options_of
from doctor.formats.model_shape import shape_of
from doctor.readers.protocol import Progress
from doctor.readers.structured_text import (
    TooMuchError,
    contents_of,
    flattened,
    ini_value,
    json_values,
    protobuf_parameters,
    yaml_value,
)
from doctor.readers.text.scanner import batch_of

_KEY = re.compile(rb"^[ \t]{0,12}(?:- )?[\"']?([A-Za-z_][\w.\-]{1,60})[\"']?[ \t]{0,8}:(?:\s|$)", re.MULTILINE)
_INI_KEY = re.compile(rb"^[ \t]{0,4}([A-Za-z_][\w.\-]{1,60})[ \t]{0,8}=", re.MULTILINE)
_INI_SECTION = re.compile(rb"\s*\[\w[\w .\-]{0,60}\][ \t]*\r?\n")
_PROTOBUF = re.compile(rb"^\s{0,40}parameters:?\s{0,20}\{\s{0,40}key:\s", re.MULTILINE)
_YAML_LINE = re.compile(
    rb"\s*(?:#.*|---.*|\.\.\.|- .*|-|--[a-z].*|[\"']?[A-Za-z_][\w.\-/ ]{0,80}[\"']?\s*:(?:\s.*)?|[\[\]{}|>].*|)\s*\Z"
)
_LINES_LOOKED_AT = 60
_OF_A_MODEL = ("architectures", "model_type", "num_hidden_layers", "n_layer", "hidden_size", "pretrained_config")
_OF_AN_ENGINE = frozenset(
    name.partition(".")[0].replace("-", "_") for names in ENGINES.values() for name in names if len(name) > 4
) - {"dtype", "attention", "policy", "batching", "condition", "speculate", "batch_size", "overlap"}
_SAID_BY_A_PROGRAM = re.compile(
    rb"^[\w.]{0,60}(?:Error|Exception): |Traceback \(most recent call last\)|out of memory", re.MULTILINE
)
"""What no configuration holds, but a report does that begins with lines like `device: NVIDIA H100`."""
_CONTAINER_WORDS = ("image", "command", "args", "containers", "services")


class EngineConfigReader:
    """Configuration of an engine or a model."""

    kind = "engine-config"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Tell whether a file is such a configuration.

        Args:
            path: an existing file.
            head: its first 64 KiB after decompression.
        """
        if b"\x00" in head or _SAID_BY_A_PROGRAM.search(head) is not None:
            return False
        is_protobuf = _PROTOBUF.search(head) is not None
        if not (head.lstrip()[:1] in b"{[" or is_protobuf or _looks_like_yaml(head)):
            return False
        found_keys = _KEY.findall(head) + (_INI_KEY.findall(head) if _INI_SECTION.match(head) else [])
        keys = {key.decode().replace("-", "_") for key in found_keys} | _json_keys(head)
        if "traceEvents" in keys or (not is_protobuf and not keys & {*_OF_A_MODEL, *_OF_AN_ENGINE, *_CONTAINER_WORDS}):
            return False
        text = contents_of(path)
        found = None if text is None else _read(text)
        return found is not None and bool(found.settings or found.shape)

    def read(self, path: Path, progress: Progress) -> Iterator[TableBatch | SourceFacts]:
        """Yield settings and the model's shape.

        Raises:
            DamagedEvidenceError: the file has changed since it was recognised.
        """
        text = contents_of(path, progress)
        found = None if text is None else _read(text)
        if found is None:
            raise DamagedEvidenceError(
                f"{path} is no configuration that can be read: give the file as the engine has it"
            )
        if found.settings:
            rows = [
                {
                    "engine": engine,
                    "setting": kept.setting,
                    "spelled": kept.spelled,
                    "told": kept.told,
                    "said_by": "file",
                    "line_id": place,
                }
                for place, (engine, kept) in enumerate(found.settings)
            ]
            yield batch_of("engine_setting", rows, self.kind)
        if found.shape:
            yield batch_of("model_shape", [found.shape], self.kind)
        what = "configuration of a model" if found.shape else f"configuration of {found.settings[0][0]}"
        notes = tuple(f"{name} is neither true nor false: passed over" for name in found.undecided)
        yield SourceFacts(self.kind, what, is_complete=not notes, notes=notes)


def _of_other_forms(text: bytes) -> Any:
    if _INI_SECTION.match(text):
        return ini_value(text)
    return protobuf_parameters(text) if _PROTOBUF.search(text) else yaml_value(text)


class _Found:
    """What a configuration holds."""

    def __init__(
        self, settings: list[tuple[str, Setting]], shape: dict[str, Any] | None, undecided: tuple[str, ...]
    ) -> None:
        self.settings = settings
        self.shape = shape
        self.undecided = undecided


def _read(text: bytes) -> _Found | None:
    values = json_values(text) if text.lstrip()[:1] in (b"{", b"[") else None
    value = values[0] if values is not None and len(values) == 1 else None
    if value is None:
        value = _of_other_forms(text)
    if not isinstance(value, dict | list):
        return None
    try:
        names = list(flattened(value))
        shape = shape_of(value) if isinstance(value, dict) else None
        commands = list(_commands(value, None, 12))
    except (TooMuchError, RecursionError):
        return None
    is_of_model_only = shape is not None and not _is_of_engine_too(names)
    flat = [] if is_of_model_only else _flat_settings(names)
    undecided = tuple(dict.fromkeys(one.kept.spelled for one in flat if one.is_undecided))
    settings = [*commands, *((one.engine, one.kept) for one in flat if not one.is_undecided)]
    if shape is not None and isinstance(value, dict):
        settings += [("transformers", kept) for kept in settings_of("transformers", _own(value))]
    return _Found(settings, shape, undecided) if settings or shape else None


def _is_of_engine_too(names: list[tuple[str, Any]]) -> bool:
    """TensorRT-LLM and TurboMind keep the model's shape and the engine's limits in one file."""
    return any(name.startswith("build_config.") or name.rpartition(".")[2] == "session_len" for name, _ in names)


def _own(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("use_cache", "attn_implementation", "_attn_implementation"):  # dtype is how it lies on disk
        if isinstance(config.get(name), str | bool):
            yield name.lstrip("_"), str(config[name])


class _Flat(NamedTuple):
    """A setting of a file, and whether its value is neither on nor off where it has to be one of them."""

    engine: str
    kept: Setting
    is_undecided: bool


def _flat_settings(names: list[tuple[str, Any]]) -> list[_Flat]:
    """Settings of the engine that knows most of the names."""
    by_engine = {engine: list(_of_engine(engine, names)) for engine in ENGINES if engine not in {"transformers"}}
    engine = max(by_engine, key=lambda name: len({one.kept.spelled for one in by_engine[name]}))
    return by_engine[engine]


def _of_engine(engine: str, names: list[tuple[str, Any]]) -> Iterator[_Flat]:
    for name, value in names:
        written = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        parts = name.split(".")
        if engine == "tensorrt-llm" and parts[-1] == "cuda_graph_config" and value in (None, "null", "~", ""):
            # nothing switches graphs off
            yield _Flat(engine, Setting("eager", "cuda_graph_config", "true"), is_undecided=False)
            continue
        for tail in (".".join(parts[-2:]), parts[-1]):
            kept = setting_of(engine, tail, written)
            if kept is not None and (
                len(parts) <= 2 or tail != parts[-1] or parts[0] in {"server_args", "build_config"}
            ):
                yield _Flat(engine, kept, is_undecided(kept.setting, written))
                break


def _commands(value: Any, engine: str | None, depth: int) -> Iterator[tuple[str, Setting]]:
    """Command lines inside a Compose or Kubernetes file: lists of words, or strings, beside their image."""
    if depth == 0:
        raise TooMuchError
    if isinstance(value, dict):
        beside = _engine_of_image(value.get("image")) or engine
        words = [
            *_word_list(value.get("entrypoint")),
            *_word_list(value.get("command")),
            *_word_list(value.get("args")),
        ]
        if words:
            yield from _settings_of_words(words, beside)
        for inner in value.values():
            yield from _commands(inner, beside, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _commands(inner, engine, depth - 1)


def _engine_of_image(image: Any) -> str | None:
    if not isinstance(image, str):
        return None
    known = (("vllm", "vllm"), ("sglang", "sglang"), ("text-generation-inference", "tgi"), ("lmdeploy", "lmdeploy"))
    return next((engine for part, engine in known if part in image), None)


def _word_list(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.replace("\\\n", " ").split()
    return [str(word) for word in value] if isinstance(value, list) and all(isinstance(w, str) for w in value) else []


def _settings_of_words(words: list[str], engine: str | None) -> Iterator[tuple[str, Setting]]:
    command = command_of(" ".join(f"'{word}'" if re.search(r"[\s{]", word) else word for word in words))
    if command is not None:
        yield from ((command.engine, kept) for kept in settings_of(command.engine, command.options))
    elif engine is not None:
        yield from ((engine, kept) for kept in settings_of(engine, options_of(words)))


def _looks_like_yaml(head: bytes) -> bool:
    lines = head.splitlines()[:_LINES_LOOKED_AT]
    whole = lines[:-1] if len(lines) > 1 and len(head) >= 65536 else lines
    return bool(whole) and sum(_YAML_LINE.match(line[:400]) is not None for line in whole) >= 0.9 * len(whole)


def _json_keys(head: bytes) -> set[str]:
    return {key.decode() for key in re.findall(rb"\"([A-Za-z_]\w{1,60})\"\s{0,4}:", head)}
