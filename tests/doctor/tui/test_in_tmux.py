"""A session in tmux, as a person far away has it: from the first screen to one kernel and back, the fix copied."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.samples import sample, trace_of

SECONDS = 60
TMUX = shutil.which("tmux")


class Session:
    """One tmux server of its own with the application in it."""

    def __init__(self, size: tuple[int, int], folder: Path) -> None:
        self._socket = str(folder / "tmux.socket")
        width, height = size
        program = f"{sys.executable} -m doctor.cli.main tui {trace_of(sample('launch-bound-decode-nsys-report'))}"
        place = ("-x", str(width), "-y", str(height), "-c", str(Path(__file__).parents[3]))
        self._tmux("-f", "/dev/null", "new-session", "-d", *place, program)

    def _tmux(self, *arguments: str) -> str:
        assert TMUX is not None
        command = [TMUX, "-S", self._socket, *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "TMUX"} | {"LC_ALL": "C.UTF-8"}
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment).stdout

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def sees(self, text: str) -> str:
        """The screen once it shows a text."""
        deadline = time.monotonic() + SECONDS
        while text not in (screen := self._tmux("capture-pane", "-p")):
            assert time.monotonic() < deadline, f"waited in vain for {text!r}:\n{screen}"
            time.sleep(0.1)
        return screen

    def buffer(self, expected: str) -> str:
        """tmux's buffer once it holds what was copied."""
        deadline = time.monotonic() + SECONDS
        while expected not in (text := self._tmux("show-buffer")):
            assert time.monotonic() < deadline, f"the buffer holds {text!r}"
            time.sleep(0.1)
        return text

    def is_over(self) -> bool:
        """True once the program has ended, which ends the server."""
        deadline = time.monotonic() + SECONDS
        while self._tmux("list-sessions"):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def end(self) -> None:
        self._tmux("kill-server")


@pytest.fixture(params=[(80, 24), (160, 50)], ids=["80x24", "160x50"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    if TMUX is None:
        pytest.skip("tmux is not installed here: apt-get install tmux")
    opened = Session(request.param, tmp_path)
    yield opened
    opened.end()


def test_from_the_first_screen_to_one_kernel_and_back_with_the_fix(session: Session) -> None:
    first = session.sees("To win")
    assert "The GPU waits for kernel launches" in first
    assert "torch.cuda.CUDAGraph" in first
    session.sees("idle with an empty queue")
    session.press("Enter")
    session.sees("194 us  Nothing runs here")
    session.press("n")
    session.press("n")
    session.sees("grid")
    session.press("Enter")
    shown = session.sees("▏cudnn")
    assert "launched by cuLaunchKernelEx on thread 22" in shown
    session.press("Escape")
    session.sees("Copy fix")
    session.press("c")
    assert session.buffer("CUDAGraph").startswith("torch.cuda.CUDAGraph around the step")
    session.press("q")
    assert session.is_over()
