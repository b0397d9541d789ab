"""Schedulers side by side, without a model and without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.main import main


def test_the_adaptive_scheduler_keeps_more_deadlines_than_static_batches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--num-requests", "150", "--json"]) == 0
    rows = {row["strategy"]: row for row in json.loads(capsys.readouterr().out)}
    static, adaptive = rows["fcfs, static batches"], rows["deadline, projected peak, balanced"]
    assert adaptive["in_time_share"] > static["in_time_share"]
    assert adaptive["interactive_latency_us"] < static["interactive_latency_us"]


def test_a_trace_from_a_file_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "arrivals.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens,deadline_s\n0,100,50,5\n0.1,200,60,\n", "utf-8")
    assert main(["simulate", "--arrivals", str(trace), "--replicas", "1"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + 6
    assert "100%" in table[-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arrival_s\n", "holds no arrival"),
        ("arrival_s,prompt_tokens,output_tokens\n0,100,50000\n", "does not fit"),
        ("arrival_s,prompt_tokens,output_tokens\n0,many,5\n", "not an arrival trace"),
    ],
)
def test_a_trace_that_cannot_be_served_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    trace = tmp_path / "arrivals.csv"
    trace.write_text(text, "utf-8")
    assert main(["simulate", "--arrivals", str(trace)]) == 2
    assert words in capsys.readouterr().err


def test_it_runs_without_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None; from engine.cli.main import main;"
        " sys.exit(main(['simulate', '--num-requests', '20']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_command_without_its_packages_says_what_to_install() -> None:
    run = "import sys; sys.modules['torch'] = None; from engine.cli.main import main; sys.exit(main(sys.argv[1:]))"
    said = subprocess.run(
        [sys.executable, "-c", run, "bench", "--model", "anywhere"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 2
    assert said.stderr == "engine: this command needs torch: pip install 'inference-doctor[engine]'\n"
