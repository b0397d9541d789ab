"""Runs a command as if it had been started alone: its exit code, its signals, and nothing of it left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from doctor.errors import UsageError
from doctor.recording.plan import Limits
from doctor.units import format_bytes

_LOOK_SECONDS = 0.25
_GRACE_SECONDS = 30.0
"""Time to write the recording after being told to end."""
_LEAVING_SECONDS = 2.0
_INTERRUPTS_IN_VAIN = 3
"""At the third Ctrl-C a command that does not listen is killed."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_SIGNAL_CODE = 128


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        exit_code: its own; 128 and the signal's number where a signal ended it, as shells say.
        stopped_by: the limit at which it was told to end, None where it ended by itself.
    """

    exit_code: int
    stopped_by: str | None = None


def supervise(
    command: Sequence[str],
    environment: Mapping[str, str],
    limits: Limits,
    folder: Path,
    started: Callable[[int], None] = lambda pid: None,
) -> Ending:
    """Run a command to its end.

    Signals to this process go on to the command and to all it started. At a limit the command is interrupted as by
    Ctrl-C, and killed where it does not end. What it leaves behind is ended after it.

    Args:
        command: program and arguments.
        environment: of the command.
        limits: when it is told to end.
        folder: whose size is limited.
        started: told the command's process id once it runs.

    Raises:
        UsageError: the command cannot be started.
    """
    with _adopting() as known, _relaying() as relay:
        try:
            process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=None if not os.isatty(0) else subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror or error}") from error
        try:
            relay.to(process.pid)
            started(process.pid)
            stopped_by = _wait(process, limits, folder)
        finally:
            _end_what_is_left(process, known)
    code = process.returncode
    return Ending(code if code >= 0 else _SIGNAL_CODE - code, stopped_by)


def _wait(process: subprocess.Popen[bytes], limits: Limits, folder: Path) -> str | None:
    began = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)
            return None
        if limits.seconds is not None and time.monotonic() - began > limits.seconds:
            reason = f"it ran longer than {limits.seconds:g} s"
        elif _size_of(folder) > limits.size_bytes:
            reason = f"the recording grew over {format_bytes(limits.size_bytes)}"
        else:
            continue
        _end(process)
        return reason


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGINT, _GRACE_SECONDS), (signal.SIGTERM, _GRACE_SECONDS / 6)):
        _signal_group(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _size_of(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it was there a moment ago
            size += path.stat().st_size
    return size


class _Relay:
    """Sends signals of this process on to a group; those that come before there is one are kept for it."""

    def __init__(self) -> None:
        self._group: int | None = None
        self._kept: list[int] = []
        self._interrupts = 0

    def to(self, group: int) -> None:
        """From now on signals go there."""
        self._group = group
        for number in self._kept:
            _signal_group(group, number)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """A signal came; one who asks in vain is helped."""
        self._interrupts += number == signal.SIGINT
        if self._group is None:
            self._kept.append(number)
        else:
            is_in_vain = self._interrupts >= _INTERRUPTS_IN_VAIN
            _signal_group(self._group, signal.SIGKILL if is_in_vain else number)


@contextmanager
def _relaying() -> Iterator[_Relay]:
    """A relay for the signals of this process; outside the main thread Python takes none."""
    relay = _Relay()
    if threading.current_thread() is not threading.main_thread():
        yield relay
        return
    before: dict[int, Any] = {number: signal.signal(number, relay.receive) for number in _PASSED_ON}
    try:
        yield relay
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@contextmanager
def _adopting() -> Iterator[frozenset[int]]:
    """Processes whose parent dies come to this one, so that they can be ended; gives the children it had before."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield frozenset(_children())
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _children() -> list[int]:
    """Children of this process, by /proc; none where that does not tell."""
    found: list[int] = []
    for tasks in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, tasks.read_text(encoding="ascii").split())
    return found


def _end_what_is_left(process: subprocess.Popen[bytes], known: frozenset[int]) -> None:
    _signal_group(process.pid, signal.SIGTERM)
    if not _is_gone_within(_LEAVING_SECONDS, lambda: _reap(process, known, signal.SIGTERM)):
        _signal_group(process.pid, signal.SIGKILL)
        _is_gone_within(_LEAVING_SECONDS, lambda: _reap(process, known, signal.SIGKILL))
    process.wait()


def _reap(process: subprocess.Popen[bytes], known: frozenset[int], number: int) -> bool:
    """Signal and collect adopted processes; True where none is left."""
    adopted = [pid for pid in _children() if pid not in known and pid != process.pid]
    for pid in adopted:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return not adopted and process.poll() is not None


def _is_gone_within(seconds: float, is_gone: Callable[[], bool]) -> bool:
    ends = time.monotonic() + seconds
    while not is_gone():
        if time.monotonic() > ends:
            return False
        time.sleep(_LOOK_SECONDS / 10)
    return True
