from __future__ import annotations

from pathlib import Path

import pytest

from doctor.errors import ToolMissingError
from doctor.recording.nsys_command import attach_command, nsys_command
from doctor.recording.plan import Plan, Window

NSYS = Path("/opt/nsys")


def words(plan: Plan) -> list[str]:
    return nsys_command(NSYS, plan, Path("/case"), ["python", "serve.py", "--duration=1"])


def test_the_command_comes_last_and_unchanged() -> None:
    command = words(Plan(Path("case")))
    assert command[:2] == ["/opt/nsys", "profile"]
    assert command[-3:] == ["python", "serve.py", "--duration=1"]
    assert "--output=/case/trace" in command


def test_rules_get_what_they_need_and_no_samples_of_the_cpu() -> None:
    assert {
        "--trace=cuda,nvtx,osrt",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-memory-usage=true",
        "--cuda-graph-trace=graph",
    } <= set(words(Plan(Path("case"))))
    assert "--cuda-graph-trace=node" in words(Plan(Path("case"), has_graph_nodes=True))


def test_a_window_of_time_lets_the_command_go_on() -> None:
    command = words(Plan(Path("case"), Window(seconds=2.5, delay_seconds=40)))
    assert {"--delay=40", "--duration=2.5", "--kill=none"} <= set(command)
    assert not [word for word in words(Plan(Path("case"))) if word.startswith("--delay")]


def test_a_window_chosen_by_the_program_has_no_duration() -> None:
    command = words(Plan(Path("case"), Window(is_chosen_by_program=True)))[:-3]
    assert {"--capture-range=cudaProfilerApi", "--capture-range-end=stop"} <= set(command)
    assert not [word for word in command if word.startswith(("--duration", "--delay"))]


def helping(folder: Path, text: str) -> Path:
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return path


def test_an_nsys_that_can_attach_is_told_the_process(tmp_path: Path) -> None:
    nsys = helping(tmp_path, "\t--attach-pid=<pid>  attach to a running process")
    assert attach_command(nsys, Plan(tmp_path), tmp_path, 4242)[-1] == "--attach-pid=4242"


def test_an_nsys_that_cannot_attach_says_what_to_do_instead(tmp_path: Path) -> None:
    nsys = helping(tmp_path, "\t--duration=<seconds>")
    with pytest.raises(ToolMissingError, match="start the command under `doctor record"):
        attach_command(nsys, Plan(tmp_path), tmp_path, 4242)
