"""The engine without Triton: everything imports, and who asks for its kernels is told what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
sys.modules["triton"] = None
import engine.attention, engine.kernels, engine.model.decoder, engine.model.one_token
from engine.attention.backend import AttentionSpec
from engine.attention.registry import create_backend
from engine.errors import ConfigError
create_backend("torch_ref", AttentionSpec(1.0, (None,)))
try:
    create_backend("triton_paged", AttentionSpec(1.0, (None,)))
except ConfigError as error:
    print(error)
"""


def test_the_backend_names_the_missing_package() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("attention backend triton_paged cannot be used: ")
    assert "triton" in done.stdout.partition(": ")[2]
