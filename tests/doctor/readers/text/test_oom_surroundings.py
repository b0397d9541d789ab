"""One failure says the same whatever stands around it, and wherever its traceback was pasted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from doctor.case.batch import TableBatch
from doctor.readers.text.document import TextDocumentReader
from tests.doctor.readers.text.test_oom import ASYNC, DRIVERS, FULL, GENERATIONS, PHASES
from tests.support import oom_texts

MESSAGES = {name: text for name, (text, _) in GENERATIONS.items()}
MESSAGES |= {line: line + "\n" for line in DRIVERS} | {"asynchronous": ASYNC}
ACCESS = 'INFO:     127.0.0.1:40112 - "GET /health HTTP/1.1" 200 OK\n'
STATUS = (
    "INFO 08-23 12:01:00 [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput:"
    " 52.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 8.0%, Prefix cache hit rate: 0.0%\n"
)
CALLER = ("/srv/app/main.py", "handle", "reply = await ask(prompt)")
OTHER = oom_texts.traceback(CALLER) + "RuntimeError: Engine core initialization failed. See root cause above.\n"
SURROUNDINGS: dict[str, Callable[[str], str]] = {
    "lines of a log": lambda text: STATUS + ACCESS + text + ACCESS + STATUS,
    "blank lines": lambda text: "\n\n" + text + "\n\n\n",
    "a shell": lambda text: f"$ python run.py\n{text}user@host:~$ \n",
    "the traceback of another error above": lambda text: OTHER + text,
    "the traceback of another error below": lambda text: text + OTHER,
    "the traceback of a caller below": lambda text: text + oom_texts.traceback(CALLER),
    "a time before each line": lambda text: _prefixed("2026-03-04T05:06:07.123Z ", text),
    "a process before each line": lambda text: _prefixed("(EngineCore pid=77) ERROR 08-23 12:01:05 [core.py:9] ", text),
    "lines of a quotation": lambda text: _prefixed("> ", text),
}


def _prefixed(prefix: str, text: str) -> str:
    return "".join(prefix + line for line in text.splitlines(keepends=True))


def _events(folder: Path, text: str) -> list[dict[str, Any]]:
    """What the reader says of failures, without where they stand, who speaks, and frames that say nothing."""
    path = folder / "text"
    path.write_text(text)
    rows = [
        row
        for part in TextDocumentReader().read(path, lambda done, total: None)
        if isinstance(part, TableBatch) and part.table == "oom_event"
        for row in part.rows.to_pylist()
    ]
    dropped = {"line_id", "pid", "stack", "framework"}
    return [{key: value for key, value in row.items() if key not in dropped and value is not None} for row in rows]


@pytest.mark.parametrize("around", SURROUNDINGS)
def test_a_message_says_the_same_whatever_stands_around_it(around: str, tmp_path: Path) -> None:
    for name, message in MESSAGES.items():
        assert _events(tmp_path, SURROUNDINGS[around](message)) == _events(tmp_path, message), name


def _newest_first(text: str) -> str:
    return "".join(reversed(text.splitlines(keepends=True)))


PLACES: dict[str, Callable[[str, str], str]] = {
    "below": lambda frames, message: message + frames,
    "below, behind a blank line": lambda frames, message: f"{message}\n{frames}",
    "below, without its head": lambda frames, message: message + frames.partition("\n")[2],
    "newest line first": lambda frames, message: _newest_first(frames + message),
    "a process before each line": lambda frames, message: _prefixed("(Worker pid=77) ERROR 08-23 ", frames + message),
    "lines of others between": lambda frames, message: ACCESS.join((frames + message).splitlines(keepends=True)),
    "lines of others between, below": lambda frames, message: ACCESS.join((message + frames).splitlines(keepends=True)),
    "another traceback below": lambda frames, message: frames + message + OTHER,
    "another traceback above": lambda frames, message: OTHER + "\n" + frames + message,
    "within a line of JSON": lambda frames, message: (
        '{"level": "error", "msg": "' + (frames + message).replace('"', '\\"').replace("\n", "\\n") + '"}\n'
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_traceback_says_the_same_wherever_it_stands(place: str, tmp_path: Path) -> None:
    for name, (frames, _, _) in PHASES.items():
        assert _events(tmp_path, PLACES[place](frames, FULL)) == _events(tmp_path, frames + FULL), name
