"""Process and thread ids out of NVIDIA's packed global ids.

A global id holds, from the top: hardware and virtual machine, 24 bits of process id, 24 bits of thread id.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_BITS = 24
_MASK = pa.scalar((1 << _BITS) - 1, pa.int64())


def process_ids(global_ids: pa.Array) -> pa.Array:
    """Process ids, int64, of globalPid or globalTid values."""
    return pc.bit_wise_and(pc.shift_right(global_ids, pa.scalar(_BITS, pa.int64())), _MASK)


def thread_ids(global_ids: pa.Array) -> pa.Array:
    """Thread ids, int64, of globalTid values."""
    return pc.bit_wise_and(global_ids, _MASK)
