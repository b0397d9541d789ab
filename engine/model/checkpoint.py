"""A checkpoint folder: its config, and its tensors mapped from one or many safetensors files."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoConfig

from engine.errors import CheckpointError, UnsupportedArchitectureError
from engine.model.architectures import supported_architectures

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def read_config(folder: Path) -> Any:
    """Read `config.json` through transformers; nothing is downloaded and no code from the folder runs.

    Raises:
        CheckpointError: the folder or the file is missing or damaged.
        UnsupportedArchitectureError: transformers does not know the model type.
    """
    path = folder / "config.json"
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist: a Hugging Face checkpoint folder is needed") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    kind = text.get("model_type") if isinstance(text, dict) else None
    if kind not in CONFIG_MAPPING:
        names = ", ".join(supported_architectures())
        raise UnsupportedArchitectureError(f"{path}: unknown model type {kind!r}; supported are {names}")
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: {reason}") from error


class Checkpoint:
    """Tensors of a folder by name. They are views of the mapped files: reading one copies nothing."""

    def __init__(self, folder: Path) -> None:
        """Open all files and read their headers.

        Raises:
            CheckpointError: there are no safetensors files, one is missing, or one is damaged.
        """
        self._folder = folder
        self._files = {name: self._open(name) for name in self._file_names()}
        self._file_of = {key: name for name, file in self._files.items() for key in file.keys()}  # noqa: SIM118 (safe_open has keys but does not iterate)
        self.unread = set(self._file_of)

    def _file_names(self) -> list[str]:
        index = self._folder / _INDEX
        if index.exists():
            try:
                return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
                raise CheckpointError(f"{index} is damaged: {error}") from error
        if not (self._folder / _SINGLE).exists():
            raise CheckpointError(f"{self._folder} holds neither {_SINGLE} nor {_INDEX}")
        return [_SINGLE]

    def _open(self, name: str) -> Any:
        path = self._folder / name
        try:
            return safe_open(path, framework="pt", device="cpu")
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def tensor(self, name: str) -> Tensor:
        """Map one tensor.

        Raises:
            CheckpointError: the checkpoint has no tensor of this name.
        """
        if name not in self._file_of:
            raise CheckpointError(f"{self._folder} has no tensor {name!r}")
        self.unread.discard(name)
        tensor: Tensor = self._files[self._file_of[name]].get_tensor(name)
        return tensor
