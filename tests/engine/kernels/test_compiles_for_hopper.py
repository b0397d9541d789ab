"""Every kernel compiles for the GPU it is tuned for, on any machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'engine'")
pytest.importorskip("engine.kernels.jit", reason="needs the extra 'test'", exc_type=ImportError)

ROOT = Path(__file__).parents[3]
SHARED_BYTES_OF_A_PROGRAM = 227 * 1024


def test_every_kernel_compiles_for_an_h200_and_fits_its_shared_memory(tmp_path: Path) -> None:
    sources = (ROOT / "engine" / "kernels").glob("*.py")
    declared = {name for path in sources for name in re.findall(r"def (_\w+_kernel)\(", path.read_text("utf-8"))}
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.compile_for_hopper"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shared = json.loads(done.stdout)
    assert set(shared) == declared
    assert max(shared.values()) <= SHARED_BYTES_OF_A_PROGRAM
