"""Operations that come back at regular distances, and the step that operations and calls fall in."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from doctor.case.arrays.columns import UNKNOWN, Code, Flag, Int, Real, by_group, fetch, medians, spelled, whole
from doctor.case.arrays.operations import DeviceOps

_SIGNATURES = """
SELECT hash(kind, name_id, grid_blocks, copy_kind, size_bytes) AS signature,
    coalesce(kind = 'memcpy' AND copy_kind IN ('htod', 'dtoh'), false) AS is_exchange
FROM device_op
"""
LEAST_OCCURRENCES = 3
LEAST_DISTANCE = 2
LEAST_REGULAR_SHARE = 0.8
LEAST_SHARE_OF_WINDOW = 0.15
NO_STEP = np.iinfo(np.int32).min


@dataclass(frozen=True)
class OpSequence:
    """Operations that start in the window, in order of start.

    Attributes:
        first: `device_op_id` of the first; the others follow.
        process: of each operation.
        place: of each operation in its process, from 1.
        signature: a number that operations of the same kind, name and size have in common.
        is_exchange: copies up or down.
        called: ns, start of the launching call; of work without one its own start.
    """

    first: int
    process: Code
    place: Int
    signature: Code
    is_exchange: Flag
    called: Int

    def span(self) -> slice:
        """The operations among all."""
        return slice(self.first, self.first + len(self.process))


def read_sequence(
    connection: duckdb.DuckDBPyConnection, ops: DeviceOps, called: Int, window: tuple[int, int]
) -> OpSequence:
    """The operations that start in the window, told apart by what they do."""
    first, last = np.searchsorted(ops.start, window).tolist()
    rows = fetch(connection, f"{_SIGNATURES} LIMIT {last - first:d} OFFSET {first:d}")
    encoded = rows.column("signature").combine_chunks().dictionary_encode()
    process = ops.process[first:last]
    order = by_group(process, len(ops.processes))
    place = np.empty(len(process), dtype=np.int64)
    place[order] = _places(process[order])
    return OpSequence(
        first,
        process,
        place,
        np.asarray(encoded.indices.to_numpy(), dtype=np.int32),
        np.asarray(rows.column("is_exchange").to_numpy(), dtype=np.bool_),
        called[first:last],
    )


def _places(in_order: Code) -> Int:
    """Place of each row among the rows of its group, from 1."""
    is_first = np.ones(len(in_order), dtype=np.bool_)
    is_first[1:] = in_order[1:] != in_order[:-1]
    first = np.flatnonzero(is_first)
    return np.arange(1, len(in_order) + 1) - np.repeat(first, np.diff(np.append(first, len(in_order))))


def recurring(ops: DeviceOps, sequence: OpSequence, window: tuple[int, int]) -> pa.Table:
    """Operations of one process and signature that come back regularly over enough of the window, a row each.

    `op_share` is the share of the process's operations between the first and the last of them.
    """
    start, family = ops.start[sequence.span()], ops.family[sequence.span()]
    group, order = _by_signature(ops, sequence)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    last = np.append(first[1:], len(group))[: len(first)] - 1
    row, count = order[first], last - first + 1
    usual, regular = _regularity(sequence.place[order], first, count)
    in_process = np.bincount(sequence.process, minlength=len(ops.processes))[sequence.process[row]]
    of_ops = (sequence.place[order[last]] - sequence.place[row]) / np.maximum(in_process, 1)
    span = np.maximum((start[order[last]] - start[row]) / max(window[1] - window[0], 1), of_ops)
    chosen = np.flatnonzero(
        (count >= LEAST_OCCURRENCES)
        & (regular >= LEAST_REGULAR_SHARE)
        & (usual >= LEAST_DISTANCE)
        & (span >= LEAST_SHARE_OF_WINDOW)
    )
    row = row[chosen]
    return pa.table(
        {
            **_processes(ops, sequence.process[row]),
            "signature": sequence.signature[row].astype(np.int64),
            "occurrence_count": count[chosen],
            "is_exchange": sequence.is_exchange[row],
            "family": spelled(family[row].astype(np.int32), ops.families, pa.string()),
            "first_ns": start[row],
            "op_share": of_ops[chosen],
        }
    )


def _by_signature(ops: DeviceOps, sequence: OpSequence) -> tuple[Int, Int]:
    """Operations in order of (process, signature) and place: the group of each, and which it is."""
    signature_count = int(sequence.signature.max(initial=-1)) + 1
    group = sequence.process.astype(np.int64) * signature_count + sequence.signature
    order = by_group(group.astype(np.int32), len(ops.processes) * signature_count)
    return group[order], order


def _regularity(place: Int, first: Int, count: Int) -> tuple[Real, Real]:
    """Median distance from one occurrence to the next, and the share of distances near it; NaN where there is none."""
    of = np.repeat(np.arange(len(first)), count)
    distance = np.diff(place, prepend=0)
    there = np.ones(len(place), dtype=np.bool_)
    there[first] = False
    of, distance = of[there], distance[there]
    usual = medians(of, distance, len(first))
    is_regular = np.abs(distance - usual[of]) <= np.maximum(2, 0.1 * usual[of])
    return usual, np.bincount(of, is_regular, len(first)) / np.maximum(count - 1, 1)


def as_rows(ops: DeviceOps, sequence: OpSequence) -> pa.Table:
    """The operations with process, signature and time of call."""
    return pa.table(
        {
            **_processes(ops, sequence.process),
            "signature": sequence.signature.astype(np.int64),
            "called_ns": sequence.called,
        }
    )


def _processes(ops: DeviceOps, process: Code) -> dict[str, pa.Array]:
    return {
        "source_id": spelled(process, [key[0] for key in ops.processes], pa.int16()),
        "pid": spelled(process, [key[1] for key in ops.processes], pa.int64()),
    }


@dataclass(frozen=True)
class Steps:
    """Steps of each process, in order of start: rows of (start, end, id)."""

    of_process: dict[tuple[int | None, ...], tuple[Int, Int, Int]]

    @staticmethod
    def of(rows: pa.Table) -> Steps:
        """Steps out of columns source_id, pid, step_id, start_ns, end_ns."""
        keys = list(zip(rows.column("source_id").to_pylist(), rows.column("pid").to_pylist(), strict=True))
        columns = [whole(rows, name) for name in ("start_ns", "end_ns", "step_id")]
        order = np.argsort(columns[0], kind="stable")
        places: dict[tuple[int | None, ...], list[int]] = {}
        for at in order.tolist():
            places.setdefault(keys[at], []).append(at)
        return Steps({key: (columns[0][at], columns[1][at], columns[2][at]) for key, at in places.items()})

    def at(self, processes: tuple[tuple[int | None, ...], ...], process: Code, time: Int) -> Code:
        """Step of each moment of a process, `NO_STEP` between steps."""
        found = np.full(len(time), NO_STEP, dtype=np.int32)
        for number, key in enumerate(processes):
            if key not in self.of_process or None in key:
                continue
            start, end, step_id = self.of_process[key]
            here = np.flatnonzero(process == number)
            place = np.searchsorted(start, time[here], side="right") - 1
            is_in = (place >= 0) & (time[here] < end[np.maximum(place, 0)])
            found[here[is_in]] = step_id[place[is_in]]
        return found


def step_work(ops: DeviceOps, blocks: Int, step_of_op: Code) -> pa.Table:
    """Operations, their device time in ns and their thread blocks, by step and family of work."""
    at = np.flatnonzero(step_of_op >= 0)
    group = step_of_op[at].astype(np.int64) * len(ops.families) + ops.family[at]
    size = int(group.max(initial=-1)) + 1
    count = np.bincount(group, minlength=size)
    device_ns = np.bincount(group, ops.end[at] - ops.start[at], size)
    rows_blocks = np.bincount(group, np.where(blocks[at] == UNKNOWN, 0, blocks[at]), size)
    there = np.flatnonzero(count)
    any_op = np.empty(size, dtype=np.int64)
    any_op[group] = at
    return pa.table(
        {
            "step_id": there // len(ops.families),
            **_processes(ops, ops.process[any_op[there]]),
            "family": spelled((there % len(ops.families)).astype(np.int32), ops.families, pa.string()),
            "op_count": count[there],
            "device_ns": device_ns[there].astype(np.int64),
            "rows_blocks": rows_blocks[there].astype(np.int64),
        }
    )
