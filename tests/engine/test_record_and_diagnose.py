"""The documented line that records, diagnoses and saves a case, on the CPU with the profiler of torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

import duckdb  # noqa: E402

import engine.profiling  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402

ROOT = Path(__file__).parents[2]


def documented_line() -> str:
    """The line as `engine.profiling` documents it."""
    lines = [line.strip() for line in (engine.profiling.__doc__ or "").splitlines() if line.startswith("    ")]
    return " ".join(lines)


def test_the_documented_line_gives_a_case_with_the_ranges_of_the_engine(tmp_path: Path) -> None:
    model = save_model(make_model("llama"), tmp_path / "model")
    program = tmp_path / "bin"
    program.mkdir()
    call_doctor = "-c 'import sys; from doctor.cli.main import main; sys.exit(main())'"
    for name, words in {"python": "", "doctor": call_doctor}.items():
        script = program / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "DIR": str(model)}
    done = subprocess.run(
        ["sh", "-c", documented_line()], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    query = "SELECT DISTINCT text.text FROM nvtx_range JOIN text ON nvtx_range.name_id = text.text_id"
    with duckdb.connect(str(tmp_path / "case.duckdb"), read_only=True) as case:
        names = {name for (name,) in case.execute(query).fetchall()}
    assert {"step", "decode", "layer", "attention", "mlp", "scheduling", "sampling"} <= names
