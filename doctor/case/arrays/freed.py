"""What becomes of memory that arrays of millions of rows leave free: it goes back to the system, or is kept for others.

The allocator of glibc keeps freed blocks of up to 32 MiB for later, and columns of a million rows are smaller than
that: after deriving a case of 1.25 million kernels it held 346 MiB that nobody used. Larger blocks go back at once, and
the system clears each page anew for the next array: for five million kernels that took a sixth of all CPU time and
more. A program of one diagnosis keeps what it has freed, on one heap, which is cleared once.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
"""Parameters of mallopt(3)."""
_NEVER = 2**31 - 1
_GROWTH_BYTES = 2**26
_is_kept = threading.Event()


def keep_freed() -> None:
    """Keep freed memory for later arrays from now on: for a program that ends with its diagnosis.

    Call it before other threads begin. Where the C library is none of GNU's nothing changes.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is not None:
        for parameter, value in (
            (_ARENA_MAX, 1),  # heaps of other threads hold no large blocks
            (_MMAP_MAX, 0),
            (_TRIM_THRESHOLD, _NEVER),
            (_TOP_PAD, _GROWTH_BYTES),
        ):
            mallopt(parameter, value)
        _is_kept.set()


def give_back() -> None:
    """Return free memory to the system, where the C library can do that and it is not to be kept."""
    trim = _of_libc("malloc_trim")
    if trim is not None and not _is_kept.is_set():
        trim(0)


def _of_libc(function: str) -> Any:
    """A function that GNU's C library has beyond the standard, None where it is another: musl has neither."""
    return getattr(ctypes.CDLL(None), function, None) if sys.platform == "linux" else None
