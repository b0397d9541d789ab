"""One run of another program, line by line; it and what it started end together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

_MOST_BYTES_OF_A_LINE = 2**20


class WatchedProcess:
    """A program whose output is shown while it runs."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def lines(self) -> AsyncIterator[str]:
        """Start the program and give what it says, line by line, until it ends."""
        process = await asyncio.create_subprocess_exec(
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=_MOST_BYTES_OF_A_LINE,
            start_new_session=True,  # so that `stop` reaches what it starts
        )
        self._process = process
        assert process.stdout is not None
        while line := await process.stdout.readline():
            yield line.decode(errors="replace").rstrip("\n")
        await process.wait()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.returncode

    def stop(self) -> None:
        """End it and all that it started; does nothing where it has ended."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
