"""Watches damaged inputs while they are read: what came of each, its processor time and memory, and what failed."""

from __future__ import annotations

import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import doctor
from doctor.errors import EvidenceError

MOST_SECONDS = 10
"""Of the processor: what else the machine does is no fault of the reader."""
MOST_WAITING_SECONDS = 600
"""On the clock: an input that uses no processor and does not end either hangs, however busy the machine is."""
MOST_MIB = 2048
DIAGNOSED_ONE_IN = 50
"""Inputs that are also diagnosed, which costs more than reading them."""
_SHOWN_FRAMES = 8


class Watch:
    """One kind of input, in a `with watch.over(seed)` for each.

    Attributes:
        outcomes: how many inputs ended in which word.
        num_failed: inputs that raised, took too long or took too much memory.
    """

    def __init__(self, kind: str) -> None:
        self.outcomes: Counter[str] = Counter()
        self.num_failed = 0
        self._kind = kind
        self._most_seconds, self._slowest = 0.0, 0
        self._peak_mib = _peak_mib()
        signal.signal(signal.SIGPROF, _used_too_much)
        signal.signal(signal.SIGALRM, _hangs)

    @contextmanager
    def over(self, seed: int) -> Iterator[None]:
        """Run what is in the context; whatever it raises is printed with the seed and counted."""
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        signal.alarm(MOST_WAITING_SECONDS)
        try:
            yield
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            self._fail(seed, traceback.format_exc(limit=-_SHOWN_FRAMES))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        self._measure(seed, time.process_time() - began)

    def report(self) -> str:
        """One line: outcomes, failures, the slowest input and the most memory."""
        return (
            f"{self._kind}: {dict(self.outcomes)}, {self.num_failed} failed; at most {self._most_seconds:.2f} CPU s "
            f"(seed {self._slowest}), {self._peak_mib:,} MiB\n"
        )

    def _measure(self, seed: int, seconds: float) -> None:
        if seconds > self._most_seconds:
            self._most_seconds, self._slowest = seconds, seed
        peak = _peak_mib()
        if peak > MOST_MIB and peak > self._peak_mib:
            self._fail(seed, f"took {peak:,} MiB of memory\n")
        self._peak_mib = peak

    def _fail(self, seed: int, words: str) -> None:
        self.num_failed += 1
        sys.stdout.write(f"{self._kind}, seed {seed}:\n{words}\n")
        sys.stdout.flush()


def diagnosed_to_the_end(path: Path) -> str:
    """Diagnose an input; what is found does not matter."""
    try:
        doctor.diagnose(path)
    except EvidenceError:
        return "refused"
    return "diagnosed"


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _used_too_much(signal_number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {MOST_SECONDS} s of the processor")


def _hangs(signal_number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {MOST_WAITING_SECONDS} s without an end")
