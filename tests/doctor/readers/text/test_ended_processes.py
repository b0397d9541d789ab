from __future__ import annotations

import pytest

from doctor.readers.text.ended_processes import CLUES, ended_pid, is_restart

ENDED = (
    "2026-01-01 10:00:00,000 xinference.core.worker WARNING Process 3312 is down, create model again.",
    "[2026-01-01 10:00:00 +0000] [1] [ERROR] Worker (pid:3312) was sent SIGKILL! Perhaps out of memory?",
    "ERROR engine process 3312 died unexpectedly, restarting it",
    "+ kill -9 3312",
    "INFO Killing stale process 3312",
    "Out of memory: Killed process 3312 (python) total-vm:90000000kB",
    "[CRITICAL] WORKER TIMEOUT (pid:3312)",
    "scheduler: child pid=3312 has exited with code -9",
    "Process 3312 is not alive",
)
OTHERS = (
    "INFO Killing 4 idle connections",
    "Process 3312 has 70.10 GiB memory in use.",
    "request 3312 terminated by the client after 20 tokens",
    "INFO loaded 3312 shards",
    "worker 12 is up",
)
AGAIN = (
    "WARNING - Process 127.0.0.1:45761 is down, create model.",
    "INFO supervisor: restarting worker (attempt 3)",
    "EngineCore died; respawning the engine",
    "Warning  BackOff  kubelet  Back-off restarting failed container",
)


@pytest.mark.parametrize("line", ENDED)
def test_a_line_names_the_process_that_ended(line: str) -> None:
    assert ended_pid(line) == 3312
    assert any(clue in line for clue in CLUES)


@pytest.mark.parametrize("line", OTHERS)
def test_other_numbers_are_no_ended_process(line: str) -> None:
    assert ended_pid(line) is None


@pytest.mark.parametrize("line", AGAIN)
def test_a_line_says_that_the_run_was_started_again(line: str) -> None:
    assert is_restart(line)
    assert any(clue in line for clue in CLUES)


@pytest.mark.parametrize("line", ["Restarted at 10:00", "please restart your shell", *OTHERS])
def test_other_lines_say_no_such_thing(line: str) -> None:
    assert not is_restart(line)
