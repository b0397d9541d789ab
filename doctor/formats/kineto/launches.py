"""The process that launched each piece of device work, which its event does not name.

Device work and API calls share a correlation id, and one file normally holds one process. The few files that several
processes were merged into need the ids: calls of the first process are not remembered, those of others are, so that
memory stays small.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_HELD_ROWS = 1 << 20


class Launches:
    """Remembers who called what, and gives device work its process.

    Attributes:
        is_uncertain: work was given to the first process before a second one appeared.
    """

    def __init__(self) -> None:
        self.is_uncertain = False
        self._first_pid: int | None = None
        self._others: list[tuple[np.ndarray, np.ndarray]] = []
        self._held: list[tuple[str, pa.RecordBatch]] = []
        self._held_rows = 0
        self._has_released = False

    def take_calls(self, calls: pa.RecordBatch) -> None:
        """Remember a batch of API calls: columns `pid` and `correlation_id`."""
        known = calls.filter(pa.compute.is_valid(calls.column("pid")))
        known = known.filter(pa.compute.is_valid(known.column("correlation_id")))
        pids = known.column("pid").to_numpy(zero_copy_only=False)
        if len(pids) == 0:
            return
        if self._first_pid is None:
            self._first_pid = int(pids[0])
        other = pids != self._first_pid
        if other.any():
            self.is_uncertain |= self._has_released
            self._others.append((known.column("correlation_id").to_numpy(zero_copy_only=False)[other], pids[other]))

    def hold(self, table: str, work: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        """Take device work without `pid`; give back what may go on, with it.

        Calls can stand behind the work they launched, so up to a million rows wait for them.
        """
        self._held.append((table, work))
        self._held_rows += work.num_rows
        if self._held_rows < _HELD_ROWS or self._first_pid is None:
            return []
        self._has_released = True
        return self.release()

    def release(self) -> list[tuple[str, pa.RecordBatch]]:
        """Give back everything that waits, with `pid`; NULL where the trace holds no API call at all."""
        held, self._held, self._held_rows = self._held, [], 0
        return [(table, work.append_column("pid", self._pids(work))) for table, work in held]

    def _pids(self, work: pa.RecordBatch) -> pa.Array:
        if self._first_pid is None:
            return pa.nulls(work.num_rows, pa.int64())
        pids = np.full(work.num_rows, self._first_pid, np.int64)
        if self._others:
            correlations = np.concatenate([part[0] for part in self._others])
            callers = np.concatenate([part[1] for part in self._others])
            order = np.argsort(correlations, kind="stable")
            correlations, callers = correlations[order], callers[order]
            wanted = pa.compute.fill_null(work.column("correlation_id"), -1).to_numpy()
            at = np.minimum(np.searchsorted(correlations, wanted), len(correlations) - 1)
            pids = np.where(correlations[at] == wanted, callers[at], pids)
        return pa.array(pids, pa.int64())
