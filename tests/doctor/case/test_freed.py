"""Freed memory: a program of one diagnosis keeps it for its next arrays, all others give it back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from doctor.case.arrays.freed import give_back, keep_freed
if sys.argv[1] == "keeping":
    keep_freed()
import numpy as np
def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20
before = resident_mib()
arrays = [np.ones(size << 17) for size in (48, 8, 8, 48)]  # MiB: larger and smaller than what glibc keeps by itself
full = resident_mib()
del arrays
give_back()
print(full - before, resident_mib() - before)
"""


def _held_and_left_mib(how: str) -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True)
    held, left = map(int, done.stdout.split())
    return held, left


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is another")
def test_freed_arrays_are_kept_only_where_that_was_asked_for() -> None:
    held, left = _held_and_left_mib("keeping")
    assert held >= 110
    assert left >= 100
    held, left = _held_and_left_mib("giving back")
    assert held >= 110
    assert left <= 20
