"""Files and folders that may not be opened: one line each, and the others are diagnosed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMAND = "vllm serve meta-llama/Llama-3.1-8B --enforce-eager --max-model-len 8192\n"
AS_ANYBODY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Root reads everything, unless it gives that right away."""

pytestmark = pytest.mark.skipif(
    bool(AS_ANYBODY) and shutil.which("setpriv") is None, reason="root, and no setpriv: nothing is forbidden here"
)


def run(*arguments: str | Path) -> tuple[int, str, list[str]]:
    command = [*AS_ANYBODY, sys.executable, "-m", "doctor.cli.main", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    closed = tmp_path / "closed"
    closed.mkdir()
    for path in (tmp_path / "serve.log", closed / "serve.log", tmp_path / "secret.json"):
        path.write_text(COMMAND, "utf-8")
    for path in (closed, tmp_path / "secret.json"):
        path.chmod(0)
    yield tmp_path
    closed.chmod(0o700)


def test_a_folder_is_diagnosed_without_what_is_closed(folder: Path) -> None:
    code, out, err = run("diagnose", folder, "--format", "json", "--no-progress")
    assert code == 0
    document = json.loads(out)
    assert document["findings"][0]["rule"] == "cudagraph-off"
    unread = {Path(entry["path"]).name for entry in document["evidence"] if not entry["read"]}
    assert unread == {"closed", "secret.json"}
    assert ["Permission denied" in line for line in err] == [True, True]


@pytest.mark.parametrize("name", ["closed", "closed/serve.log", "secret.json", "closed/*"])
@pytest.mark.parametrize("command", ["diagnose", "check"])
def test_what_is_closed_is_refused_in_one_line(folder: Path, command: str, name: str) -> None:
    code, _, err = run(command, folder / name)
    assert (code, len(err)) == (2, 1)
    assert "unexpected" not in err[0]
    assert name.removesuffix("/*") in err[0]


@pytest.mark.parametrize("option", ["-o", "--save"])
def test_nothing_is_written_where_nobody_may_enter(folder: Path, option: str) -> None:
    code, out, err = run("diagnose", folder / "serve.log", option, folder / "closed" / "file")
    assert (code, out, len(err)) == (2, "", 1)
    assert "may not be entered" in err[0]
