"""The operation that opens each step of a process: one that comes back at regular distances.

Sizes tell operations apart that bear one name, so they belong to what is compared. Where the steps of a run differ in
size (prompts among decodes, batches that shrink), an operation of one size marks a few of them only. There a step is a
round trip: inputs of any size go up and a result comes down, as often as each other, over nearly the whole window and
at least twice as often as what one size marks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa

from doctor.case.arrays.columns import (
    IN_CACHE,
    SLICE_ROWS,
    Code,
    Flag,
    Int,
    Real,
    by_group,
    gather,
    rows_of,
    slices,
)
from doctor.case.arrays.operations import DeviceOps, process_columns

_SIGNATURES = """
SELECT hash({told_by}) AS signature, coalesce(kind = 'memcpy' AND copy_kind IN ('htod', 'dtoh'), false) AS is_exchange
FROM device_op
"""
_TOLD_BY_SIZE = "kind, name_id, grid_blocks, copy_kind, size_bytes"
_OF_ANY_SIZE = "kind, name_id, copy_kind"
_DISTANCE_BITS = 31
LEAST_OCCURRENCES = 3
LEAST_DISTANCE = 2
LEAST_REGULAR_SHARE = 0.8
LEAST_SHARE_OF_WINDOW = 0.15
ANY_SIZE_REGULAR_SHARE = 0.5
"""Of steps of different sizes, those of the commonest kind follow each other regularly."""
WHOLE_SHARE_OF_WINDOW = 0.8
"""A marker told by size that covers less may have left out steps of other sizes, and a round trip may not."""
NEAR_PASSES = 0.15
"""How far the numbers of exchanges and of forward passes, or of exchanges up and down, may differ, of either."""
MATRIX_PRODUCTS_OF_LAYER = 6
"""Most of one shape that a layer has: four projections, two of an MLP."""
PRODUCTS_OF_ONE_LAYER = (3.5, 8.5)
"""Matrix products of a transformer layer: four of attention and two or three of an MLP, or fused ones."""
_MATRIX_WORK = ("gemm", "graph")
_BATCHES = """
SELECT source_id, pid, count(*) AS batch_count FROM device_op, steady_window
WHERE kind = 'memcpy' AND (copy_kind = 'htod' OR copy_kind = 'dtoh' AND size_bytes > 8)
    AND start_ns >= from_ns AND start_ns < until_ns
GROUP BY source_id, pid
"""


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
    place: Code
    signature: Code
    is_exchange: Flag
    called: Int

    def span(self) -> slice:
        """The operations among all."""
        return slice(self.first, self.first + len(self.process))


@dataclass(frozen=True)
class Recurring:
    """Signatures that come back regularly in one process, one element each.

    Attributes:
        process: of the operations.
        signature: of the operations.
        count: occurrences.
        is_exchange: copies up or down.
        is_matrix_work: matrix products and whole graphs.
        is_graph: whole graphs.
        first_ns: start of the first.
        op_share: share of the process's operations from the first to the last.
        span: that, or the share of the window's time if it is larger.
    """

    process: Int
    signature: Int
    count: Int
    is_exchange: Flag
    is_matrix_work: Flag
    is_graph: Flag
    first_ns: Int
    op_share: Real
    span: Real


@dataclass(frozen=True)
class Marker:
    """What opens the steps of a process.

    Attributes:
        signature: of the operation.
        count: how often it comes.
        span: over how much of the window.
        is_step: it marks no layer and no collective: an exchange with the host, a graph, or what holds many layers.
        is_layer: what lies between two of them is as much as one layer of a transformer, wherever the host waits.
    """

    signature: int
    count: int
    span: float
    is_step: bool
    is_layer: bool = False


def read_sequence(
    connection: duckdb.DuckDBPyConnection, ops: DeviceOps, called: Int, window: tuple[int, int]
) -> OpSequence:
    """The operations that start in the window, told apart by what they do."""
    first, last = np.searchsorted(ops.start, window).tolist()
    process = ops.process[first:last]
    place = np.empty(len(process), dtype=np.int32)
    for one in range(len(ops.processes)):
        here = rows_of(process, one, len(ops.processes))
        place[here] = np.arange(1, len(place[here]) + 1, dtype=np.int32)
    signature, is_exchange = _read_signatures(connection, _TOLD_BY_SIZE, first, last)
    return OpSequence(first, process, place, signature, is_exchange, called[first:last])


def _read_signatures(connection: duckdb.DuckDBPyConnection, told_by: str, first: int, last: int) -> tuple[Code, Flag]:
    """Numbers in order of first occurrence, part by part as columns are read."""
    signature, is_exchange = np.empty(last - first, dtype=np.int32), np.empty(last - first, dtype=np.bool_)
    number: dict[int, int] = {}
    rows = f"{_SIGNATURES.format(told_by=told_by)} LIMIT {last - first:d} OFFSET {first:d}"
    done = 0
    for part in connection.sql(rows).to_arrow_reader(SLICE_ROWS):
        until = done + part.num_rows
        encoded = part.column("signature").dictionary_encode()
        numbers = [number.setdefault(one, len(number)) for one in encoded.dictionary.to_pylist()]
        signature[done:until] = gather(np.asarray(numbers, dtype=np.int32), encoded.indices.to_numpy())
        is_exchange[done:until] = part.column("is_exchange").to_numpy(zero_copy_only=False)
        done = until
    return signature, is_exchange


def find_markers(
    connection: duckdb.DuckDBPyConnection, ops: DeviceOps, sequence: OpSequence, window: tuple[int, int]
) -> tuple[OpSequence, dict[int, Marker]]:
    """The marker of each process that has one; operations of processes with steps of many sizes are named anew."""
    markers = choose(recurring(ops, sequence, window, LEAST_REGULAR_SHARE))
    none = Marker(-1, 0, 0.0, is_step=False)
    marked = {process: markers.get(process, none) for process in np.unique(sequence.process).tolist()}
    partial = {process: marker.count for process, marker in marked.items() if marker.span < WHOLE_SHARE_OF_WINDOW}
    if not partial:
        return sequence, _with_layers(connection, ops, sequence, markers)
    bounds = sequence.span()
    signature, _ = _read_signatures(connection, _OF_ANY_SIZE, bounds.start, bounds.stop)
    of_any_size = recurring(ops, replace(sequence, signature=signature), window, ANY_SIZE_REGULAR_SHARE)
    offset = int(sequence.signature.max(initial=-1)) + 1
    trips = {
        process: replace(trip, signature=trip.signature + offset)
        for process, count in partial.items()
        if (trip := _round_trip(of_any_size, process)) is not None and trip.count >= 2 * count
    }
    is_renamed = np.isin(sequence.process, list(trips))
    renamed = np.where(is_renamed, signature + offset, sequence.signature).astype(np.int32)
    return replace(sequence, signature=renamed), _with_layers(connection, ops, sequence, markers | trips)


def _with_layers(
    connection: duckdb.DuckDBPyConnection, ops: DeviceOps, sequence: OpSequence, markers: dict[int, Marker]
) -> dict[int, Marker]:
    """The markers, those told that mark layers: one attention and a few products each, and no batch goes up or down.

    A layer that asks for one value, or is timed, waits as a step does; but a step is given its inputs, or gives its
    tokens, and holds many layers.
    """
    alike = {process for process, marker in markers.items() if _is_as_much_as_a_layer(ops, sequence, process, marker)}
    if not alike:
        return markers
    batches: dict[tuple[int | None, ...], int] = {
        (source_id, pid): count for source_id, pid, count in connection.execute(_BATCHES).fetchall()
    }
    return {
        process: replace(
            marker, is_layer=process in alike and batches.get(ops.processes[process], 0) < 0.5 * marker.count
        )
        for process, marker in markers.items()
    }


def _is_as_much_as_a_layer(ops: DeviceOps, sequence: OpSequence, process: int, marker: Marker) -> bool:
    here = rows_of(sequence.process, process, len(ops.processes))
    count = np.bincount(ops.family[sequence.span()][here], minlength=len(ops.families))
    of = dict(zip(ops.families, count.tolist(), strict=True))
    attention = of["attention"] or of["softmax"]
    least, most = (share * marker.count for share in PRODUCTS_OF_ONE_LAYER)
    is_one = abs(attention - marker.count) <= NEAR_PASSES * marker.count
    if not is_one or not least <= of["gemm"] <= most:
        return False
    called = sequence.called[here][sequence.signature[here] == marker.signature]
    return len(np.unique(called)) > 0.5 * len(called)  # one call for many kernels launches a graph


def _round_trip(found: Recurring, process: int) -> Marker | None:
    """The rarer of two exchanges that are equally many and come over nearly the whole window."""
    is_wide = (found.process == process) & found.is_exchange & (found.span >= WHOLE_SHARE_OF_WINDOW)
    at = np.flatnonzero(is_wide)
    at = at[np.lexsort((found.first_ns[at], found.count[at]))]
    for one, other in zip(at[:-1].tolist(), at[1:].tolist(), strict=True):
        if found.count[other] - found.count[one] <= NEAR_PASSES * found.count[one]:
            return Marker(int(found.signature[one]), int(found.count[one]), float(found.span[one]), is_step=True)
    return None


def recurring(ops: DeviceOps, sequence: OpSequence, window: tuple[int, int], least_regular: float) -> Recurring:
    """Operations of one process and signature that come back regularly over enough of the window."""
    start, family = ops.start[sequence.span()], ops.family[sequence.span()]
    group, first, order = _by_signature(ops, sequence)
    last = np.append(first[1:], len(order))[: len(first)] - 1
    row, count = order[first], last - first + 1
    usual, regular = _regularity(gather(sequence.place, order), group, first, count)
    in_process = np.bincount(sequence.process, minlength=len(ops.processes))[sequence.process[row]]
    op_share = (sequence.place[order[last]] - sequence.place[row]) / np.maximum(in_process, 1)
    span = np.maximum((start[order[last]] - start[row]) / max(window[1] - window[0], 1), op_share)
    chosen = np.flatnonzero(
        (count >= LEAST_OCCURRENCES)
        & (regular >= least_regular)
        & (usual >= LEAST_DISTANCE)
        & (span >= LEAST_SHARE_OF_WINDOW)
    )
    row = row[chosen]
    return Recurring(
        sequence.process[row].astype(np.int64),
        sequence.signature[row].astype(np.int64),
        count[chosen],
        sequence.is_exchange[row],
        ops.is_of(*_MATRIX_WORK)[family[row]],
        ops.is_of("graph")[family[row]],
        start[row],
        op_share[chosen],
        span[chosen],
    )


def _by_signature(ops: DeviceOps, sequence: OpSequence) -> tuple[Code, Int, Code]:
    """The groups of one process and signature, ascending, where each begins, and the operations in that order."""
    signature_count = int(sequence.signature.max(initial=-1)) + 1
    group = sequence.process * np.int32(signature_count)
    group += sequence.signature
    order = by_group(group, len(ops.processes) * signature_count).astype(np.int32, copy=False)
    group = gather(group, order)
    is_first = np.ones(len(group), dtype=np.bool_)
    np.not_equal(group[1:], group[:-1], out=is_first[1:])
    first = np.flatnonzero(is_first)
    return group[first], first, order


def _regularity(place: Code, group: Code, first: Int, count: Int) -> tuple[Real, Real]:
    """Median distance from one occurrence to the next, and the share of distances near it; NaN where there is none.

    Args:
        place: of each occurrence, in order of group.
        group: number of each group that has any, ascending.
        first: the first occurrence of each.
        count: how many each has.
    """
    below = group.astype(np.int64) << _DISTANCE_BITS
    ascending = np.repeat(below, count - 1)
    is_later = np.ones(len(place), dtype=np.bool_)
    is_later[first] = False  # the first of a group is at no distance
    done = 0
    for part in slices(len(place) - 1, IN_CACHE):
        distance = (place[1:][part] - place[:-1][part])[is_later[1:][part]]
        ascending[done : done + len(distance)] |= distance
        done += len(distance)
    ascending.sort()
    begin = np.searchsorted(ascending, below)
    size = count - 1
    there = np.flatnonzero(size)
    middle = ascending[begin[there] + (size[there] - 1) // 2] + ascending[begin[there] + size[there] // 2]
    usual = np.full(len(first), np.nan)
    usual[there] = (middle - 2 * below[there]) / 2
    slack = np.floor(2 * np.maximum(2, 0.1 * usual[there])) / 2  # medians of whole numbers are whole, or end in a half
    least = below[there] + np.ceil(usual[there] - slack).astype(np.int64)
    most = below[there] + np.floor(usual[there] + slack).astype(np.int64)
    near = np.zeros(len(first))
    near[there] = np.searchsorted(ascending, most, side="right") - np.searchsorted(ascending, least)
    return usual, near / np.maximum(size, 1)


def choose(found: Recurring) -> dict[int, Marker]:
    """The best marker of each process.

    An exchange at every forward pass beats a rarer event, such as one block table in many steps; otherwise the rarest.
    The rarest regular matrix product, the language-model head, tells how many passes there are.
    """
    return {
        process: _best(found, np.flatnonzero(found.process == process)) for process in np.unique(found.process).tolist()
    }


def _best(found: Recurring, of_process: Int) -> Marker:
    matrix_counts = found.count[of_process][found.is_matrix_work[of_process]]
    passes = matrix_counts.min(initial=np.iinfo(np.int32).max)
    is_near = np.abs(found.count - passes) <= NEAR_PASSES * passes + 1
    at = min(
        of_process.tolist(),
        key=lambda one: (
            not (found.is_exchange[one] and is_near[one]),
            found.count[one],
            not found.is_exchange[one],
            found.first_ns[one],
        ),
    )
    holds_layers = matrix_counts.max(initial=0) > MATRIX_PRODUCTS_OF_LAYER * found.count[at]
    is_step = found.op_share[at] >= 0.5 and (found.is_exchange[at] or found.is_graph[at] or holds_layers)
    return Marker(int(found.signature[at]), int(found.count[at]), float(found.span[at]), bool(is_step))


def marker_rows(ops: DeviceOps, sequence: OpSequence, markers: dict[int, Marker]) -> pa.Table:
    """A row for each process that has a marker.

    The last step, which no other follows, is taken to hold as many operations as most: `last_called_ns` is the latest
    call of one of them, `next_called_ns` the call of the operation behind them, NULL where none follows.
    """
    rows = {process: rows_of(sequence.process, process, len(ops.processes)) for process in markers}
    last = [_last_step(sequence, rows[process], marker) for process, marker in markers.items()]
    return pa.table(
        {
            **process_columns(ops, np.asarray(list(markers), dtype=np.int32)),
            "signature": np.asarray([marker.signature for marker in markers.values()], dtype=np.int64),
            "is_step": np.asarray([marker.is_step for marker in markers.values()], dtype=np.bool_),
            "is_layer": np.asarray([marker.is_layer for marker in markers.values()], dtype=np.bool_),
            "last_called_ns": pa.array([called for called, _ in last], pa.int64()),
            "next_called_ns": pa.array([called for _, called in last], pa.int64()),
        }
    )


def _last_step(sequence: OpSequence, here: Int | slice, marker: Marker) -> tuple[int, int | None]:
    opening = np.flatnonzero(sequence.signature[here] == marker.signature)
    until = int(opening[-1] + np.median(np.diff(opening)))
    called = sequence.called[here]
    return int(called[opening[-1] : until].max()), int(called[until]) if until < len(called) else None


def operation_rows(ops: DeviceOps, sequence: OpSequence) -> pa.Table:
    """The operations with process, signature and time of call."""
    return pa.table(
        {
            **process_columns(ops, sequence.process),
            "signature": sequence.signature.astype(np.int64),
            "called_ns": sequence.called,
        }
    )
