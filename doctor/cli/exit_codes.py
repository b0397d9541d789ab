"""What the process's exit code says; scripts depend on it."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    """Done; with `--fail-on`, nothing at or above the bar."""
    BAR_REACHED = 1
    """A finding at or above the bar."""
    UNUSABLE = 2
    """The input or the arguments are unusable: one line on standard error says why."""
    INCOMPLETE = 3
    """Evidence was read but is incomplete, and `--strict` was given; stands above `BAR_REACHED`."""
    HUNG_UP = 129
    """SIGHUP: the terminal went away."""
    INTERRUPTED = 130
    """Ctrl-C."""
    TERMINATED = 143
    """SIGTERM."""
