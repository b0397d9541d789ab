"""Starts the loading process and hands on what it reports."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Iterator

from doctor.tui.loading.events import LoadEvent, LoadFailed, LoadRequest

_MODULE = "doctor.tui.loading.child"


class LoadingProcess:
    """One running load; `stop` ends it from any thread."""

    def __init__(self, request: LoadRequest) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the terminal belongs to the application
            start_new_session=True,  # Ctrl-C is a key here, not a signal for everybody
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `events` tells that it has died
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()  # it stays open: its end tells the process that nobody waits any more

    def events(self) -> Iterator[LoadEvent]:
        """Every event as it comes; the last is `LoadFailed` where the process died of something."""
        assert self._process.stdout is not None
        with contextlib.suppress(EOFError, pickle.UnpicklingError, OSError):
            while True:
                yield pickle.load(self._process.stdout)  # noqa: S301 - from our own process
        self._process.stdout.close()
        code = self._process.wait()
        if code != 0:
            yield LoadFailed(f"the loading process ended with {code}: perhaps the machine has too little memory")

    def stop(self) -> None:
        """End the process at once; does nothing where it has ended."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
