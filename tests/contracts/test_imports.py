"""Who may import whom, as declared in pyproject.toml, and what a cold start may load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"duckdb", "pyarrow", "sqlalchemy", "numpy", "rich", "textual", "torch", "zstandard", "lz4"}


def test_imports_point_the_way_they_should() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["diagnose", "--help"], ["--version"], ["no-such-command"]])
def test_a_cold_start_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from doctor.cli.main import main\n"
        f"main({arguments!r})\n"
        "print('loaded', *sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    assert not HEAVY & loaded
