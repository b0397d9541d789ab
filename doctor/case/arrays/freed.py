"""Gives freed memory back to the system between stages that each need much of it.

The allocator of glibc keeps freed blocks of up to 32 MiB for later, and columns of a million rows are smaller than
that: after deriving a case of 1.25 million kernels it held 346 MiB that nobody used.
"""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Return free memory to the system, where the C library can do that."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)
