"""Signals that ask the program to end: whatever it is doing unwinds, so that nothing is left behind."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from doctor.cli.exit_codes import ExitCode

_SIGNALS = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.HUNG_UP,
}
_UNWINDING_SECONDS = 2.0
"""A key that is hit several times shall not interrupt the tidying up; one that was not heard is hit again later."""


class Interrupted(KeyboardInterrupt):
    """Raised in the main thread.

    A type of its own: of a plain `KeyboardInterrupt` that passed through `exec` Python takes its exit code from SIGINT.
    """


class Interruption:
    """What was heard.

    Attributes:
        number: of the first signal; None while there was none.
    """

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._heard: set[int] = set()
        self._last = -_UNWINDING_SECONDS
        self._alarm_before: Any = None

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Take a signal.

        Raises:
            Interrupted: always, but for those that come while the program unwinds. Of these another signal than those
                heard before is kept until the time to unwind is over: a supervisor sends SIGTERM once.
        """
        since = time.monotonic() - self._last
        is_another = number not in self._heard
        self._heard.add(number)
        self.number = self.number or signal.Signals(number)
        if since >= _UNWINDING_SECONDS:
            self._interrupt()
        if is_another:
            if self._alarm_before is None:
                self._alarm_before = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, _UNWINDING_SECONDS - since)

    def forget(self) -> None:
        """Raise nothing from now on."""
        if self._alarm_before is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._alarm_before)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        self._interrupt()

    def _interrupt(self) -> NoReturn:
        self._last = time.monotonic()
        raise Interrupted

    @property
    def exit_code(self) -> ExitCode:
        """128 and the signal's number, as shells say; of Ctrl-C where no signal was heard."""
        return _SIGNALS[self.number or signal.SIGINT]

    @property
    def words(self) -> str:
        """What to say of it."""
        return "interrupted" if self.number in {None, signal.SIGINT} else f"ended by {self.number.name}"


@contextmanager
def listening() -> Iterator[Interruption]:
    """Hear the signals that would end the process on the spot; one that is ignored, as under `nohup`, stays so.

    Outside the main thread Python takes none.
    """
    heard = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    deadly = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: handler for number in _SIGNALS if (handler := signal.getsignal(number)) in deadly}
    for number in before:
        signal.signal(number, heard.hear)
    try:
        yield heard
    finally:
        heard.forget()
        for number, handler in before.items():
            signal.signal(number, handler)
