"""The program on a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.samples import sample, trace_of

SICK = "launch-bound-decode-nsys-report"
XTERM = {"TERM": "xterm-256color"}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def on_a_terminal(*arguments: str, environment: dict[str, str], columns: int = 80, exit_code: int = 0) -> str:
    """What a terminal of that width receives, standard output and standard error together."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "TERM"}}
    program = [sys.executable, "-m", "doctor.cli.main", *arguments]
    with subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs, env=kept | environment) as process:
        os.close(theirs)
        received = b""
        while piece := _read(ours):
            received += piece
    os.close(ours)
    assert process.returncode == exit_code
    return received.decode("utf-8").replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 2**16)
    except OSError:  # Linux says so when the other side has closed
        return b""


@pytest.mark.parametrize("columns", [80, 140])
def test_the_report_fills_the_terminal_and_no_more(columns: int) -> None:
    text = on_a_terminal("diagnose", "--no-progress", str(trace_of(sample(SICK))), environment=XTERM, columns=columns)
    assert COLOUR.search(text)
    widest = max(len(line) for line in COLOUR.sub("", text).splitlines())
    assert columns - 20 < widest <= columns


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}, {}])
def test_a_terminal_that_wants_no_colour_gets_none(environment: dict[str, str]) -> None:
    assert "\x1b" not in on_a_terminal(
        "diagnose", "--no-progress", str(trace_of(sample(SICK))), environment=environment
    )


def test_the_application_says_why_it_cannot_draw_where_standard_error_is_redirected(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "doctor.cli.main", "tui", str(trace_of(sample(SICK)))]
    with (tmp_path / "errors").open("wb") as errors:
        done = subprocess.run(program, stdin=theirs, stdout=theirs, stderr=errors, env=os.environ | XTERM, check=False)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2
    assert "draws on standard error" in (tmp_path / "errors").read_text()


@pytest.mark.parametrize(("name", "said"), [("nosuch", "no file or folder"), ("photo.png", "is an image")])
def test_the_application_does_not_open_for_what_is_no_evidence(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    text = on_a_terminal("tui", str(tmp_path / name), environment=XTERM, columns=200, exit_code=2)
    assert said in text
    assert len(text.splitlines()) == 1
    assert "\x1b[?1049h" not in text


def test_progress_leaves_nothing_on_the_screen() -> None:
    text = on_a_terminal("diagnose", str(trace_of(sample(SICK))), environment=XTERM)
    before_verdict = text.split("CRITICAL")[0]
    after_last_erasure = re.split(r"\x1b\[\??[0-9;]*[A-Zhl]", COLOUR.sub("", before_verdict))[-1]
    assert after_last_erasure.strip() == ""
