"""Runs the program that is tuned: any that prints `engine.bench/1` and records with `--profile torch --trace FILE`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doctor.errors import UsageError
from doctor.formats.private_paths import without_folders
from doctor.readers import registry
from doctor.tuning.command_line import CommandLine, Manual, Option
from doctor.tuning.conditions import FREE, Fixed, asks_for_condition, fixed_by
from doctor.tuning.outcome import Speed

BENCH_SCHEMA = "engine.bench/1"
_TELLING_SECONDS = 60.0
"""For what a program says of itself: it does no work for that."""
_MOST_NOTE = 240


@dataclass(frozen=True)
class Measured:
    """A command that ran.

    Attributes:
        line: the command.
        speed: of its runs without a profiler.
        evidence: what can be diagnosed: the recording of its last run, what it printed, and its log.
    """

    line: CommandLine
    speed: Speed
    evidence: tuple[Path, ...]


@dataclass(frozen=True)
class Refused:
    """A command that did not run, and the last line it said."""

    because: str


class Program:
    """Starts the command and reads what it prints.

    Args:
        folder: where recordings and output are kept.
        repeats: runs without a profiler in each start; one more is recorded.
        timeout_s: after which a start is given up.
    """

    def __init__(self, folder: Path, repeats: int, timeout_s: float) -> None:
        self._folder = folder
        self._repeats = repeats
        self._timeout_s = timeout_s
        self.run_count = 0

    def manual(self, line: CommandLine) -> Manual:
        """What the program's help says of its options; nothing is known where it has none."""
        return Manual.parse(self._told((*line.head, "--help")))

    def fixed(self, line: CommandLine) -> Fixed:
        """What a condition on the command fixes, as `PROGRAM conditions --json` says it."""
        return (
            fixed_by(line, self._told((*line.head[:-1], "conditions", "--json"))) if asks_for_condition(line) else FREE
        )

    def _told(self, words: tuple[str, ...]) -> str:
        """What a command prints about the program; nothing where it fails or takes too long."""
        if not words:
            return ""
        printed, said = self._folder / "told.txt", self._folder / "told.log"
        try:
            failure = self._finish(words, printed, said, min(self._timeout_s, _TELLING_SECONDS))
            return "" if failure else printed.read_text("utf-8", "replace")
        except UsageError:
            return ""
        finally:
            printed.unlink(missing_ok=True)
            said.unlink(missing_ok=True)

    def run(self, line: CommandLine) -> Measured | Refused:
        """Start the command once.

        Raises:
            UsageError: it cannot be started, or what it prints is no `engine.bench/1`.
        """
        self.run_count += 1
        stem = self._folder / f"run-{self.run_count:02}"
        printed, said, trace = (
            stem.with_suffix(".json"),
            stem.with_suffix(".log"),
            stem.with_suffix(".pt.trace.json.gz"),
        )
        recorded = line.having(
            (
                Option("--repeat", (str(self._repeats + 1),)),
                Option("--profile", ("torch",)),
                Option("--trace", (str(trace),)),
            )
        )
        failure = self._finish(recorded.words, printed, said, self._timeout_s)
        if failure is not None:
            return Refused(failure)
        speed = _speed(printed)
        evidence = tuple(path for path in (trace, printed, said) if path.is_file() and registry.knows(path))
        return Measured(line, speed, evidence)

    @staticmethod
    def _finish(words: tuple[str, ...], printed: Path, said: Path, timeout_s: float) -> str | None:
        """Run to the end; why it failed, None where it did not."""
        with printed.open("wb") as out, said.open("wb") as err:
            try:
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0)
            except OSError as error:
                raise UsageError(f"{words[0]} cannot be started: {error.strerror or error}") from error
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return f"it ran longer than {timeout_s:g} s"
            finally:
                _end(process)
        return None if code == 0 else _last_line(said) or f"exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of the program outlives its start."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in path.read_bytes().decode("utf-8", "replace").splitlines() if line.strip()]
    return without_folders(lines[-1])[:_MOST_NOTE] if lines else ""


def _speed(path: Path) -> Speed:
    """Speeds of the runs that no profiler slowed: all but the last.

    Raises:
        UsageError: the file holds no benchmark.
    """
    document = _document(path)
    try:
        tokens = float(document["output_tokens"])
        seconds = [float(value) for value in document.get("repeats") or (document["seconds"],)]
        return Speed(tuple(tokens / value for value in seconds[: max(1, len(seconds) - 1)]))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise UsageError(
            f"the command ran, but printed no {BENCH_SCHEMA}: tune `python -m engine bench` or a program that prints it"
        ) from error


def _document(path: Path) -> dict[str, Any]:
    """The last line that is a benchmark; an empty object where there is none."""
    for line in reversed(path.read_bytes().splitlines()):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict) and value.get("schema") == BENCH_SCHEMA:
                return value
    return {}
