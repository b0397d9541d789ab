"""A replay as a newcomer would write it: one event at a time, straight from the definitions in `doctor.replay.run`."""

from __future__ import annotations

import math
from functools import cache

from doctor.replay.run import Run


class OneByOne:
    """Ends of operations and returns of calls of a run, each computed from those it depends on."""

    def __init__(self, run: Run) -> None:
        calls, ops, waits = run.calls, run.ops, run.waits
        awaited = {
            int(call): [int(op) for op in waits.op[waits.first[row] : waits.first[row + 1]]]
            for row, call in enumerate(waits.call)
            if waits.is_active[row]
        }
        lag = dict(zip(waits.call.tolist(), waits.lag.tolist(), strict=True))

        @cache
        def called(call: int) -> float:
            if call == 0 or calls.thread[call - 1] != calls.thread[call]:
                return 0.0
            return returned(call - 1) + float(calls.silence[call])

        @cache
        def returned(call: int) -> float:
            end = called(call) + float(calls.own[call])
            if call in awaited:
                end = max(end, max(ended(op) for op in awaited[call]) + lag[call])
            return end

        @cache
        def ended(op: int) -> float:
            """Latest end in the stream up to this operation."""
            before = ended(op - 1) if op > 0 and ops.stream[op - 1] == ops.stream[op] else -math.inf
            start = max(called(int(ops.call[op])) + float(ops.latency[op]), before + float(ops.distance[op]))
            if ops.source[op] >= 0:
                start = max(start, ended(int(ops.source[op])) + float(ops.source_distance[op]))
            return max(before, start + float(ops.duration[op]))

        self.makespan_ns = max([0.0, *(ended(op) for op in range(len(ops.op_id)))])
        self.wait_end = [returned(int(call)) for call in waits.call]
