"""How far a replay can be trusted: does it give back what was recorded, and with how little knowledge?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from doctor.replay.building import latency_class, median_by_group
from doctor.replay.corrections import Corrected
from doctor.replay.run import Int, Ops, Run

MAX_IDENTITY_ERROR = 0.05
MAX_CLASS_MEDIAN_ERROR = 0.10
MAX_TIED_SHARE = 0.50
"""Above this share of operations without a recorded launch, a replay of the host says little."""

LATENCY_CLASSES = 8
"""More than `latency_class` tells apart."""
COPY = 1
SHORT_COPY_NS = 10_000.0
"""Below this the size of a copy does not tell in how long its call takes."""


@dataclass(frozen=True)
class Quality:
    """How far the replay can be trusted; shares and errors are relative.

    Attributes:
        is_trusted: False means no promised wins.
        identity_error: of the replay with every event's own latencies; near zero by construction.
        class_median_error: of the replay with class medians instead; the honest figure.
        host_speed_factor: slowness of the host against a quiet one, None where the recording does not tell.
        profiler_share: of the window, None where it could not be told.
        correction: how the profiler's cost was taken out.
        notes: reasons for distrust, and what is odd about a measured time.
    """

    is_trusted: bool
    identity_error: float
    class_median_error: float
    host_speed_factor: float | None
    profiler_share: float | None
    correction: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Errors:
    """How far replays of the untouched run miss its recorded length, relative; see `Quality`."""

    identity: float
    class_median: float


def error(run: Run, replayed_ns: float) -> float:
    """How far a replay of the run misses its recorded length, relative; 0 where nothing was recorded."""
    return abs(replayed_ns / run.recorded_ns - 1.0) if run.recorded_ns > 0 else 0.0


def judge(run: Run, errors: Errors, corrected: Corrected) -> Quality:
    """Say what speaks against trusting a replay."""
    reasons = tuple(_reasons(run, errors.identity, errors.class_median))
    return Quality(
        not reasons,
        errors.identity,
        errors.class_median,
        corrected.host_speed_factor,
        corrected.profiler_share,
        corrected.method,
        (*reasons, corrected.remark) if corrected.remark else reasons,
    )


def with_class_medians(run: Run) -> Run:
    """The run with the median latency, distance and return lag of each class instead of each event's own."""
    ops, waits = run.ops, run.waits
    is_launched = ~ops.is_tied & ~ops.is_queued & (ops.source < 0)
    length = _copy_length(ops)
    classes = latency_class(ops) + LATENCY_CLASSES * length
    latency = np.where(is_launched, median_by_group(ops.latency, classes, is_launched, 0.0), ops.latency)
    distance = np.where(ops.is_queued, median_by_group(ops.distance, classes, ops.is_queued, 0.0), ops.distance)
    crossing = ops.source >= 0
    source_distance = np.where(crossing, median_by_group(ops.source_distance, ops.kind, crossing, 0.0), np.float32(0.0))
    own_copy = np.flatnonzero(waits.is_own_copy)
    function = run.calls.name[waits.call].astype(np.int64) * (length.max(initial=0) + 1)
    function[own_copy] += length[waits.op[waits.first[own_copy]]]
    lag = np.where(waits.did_block, median_by_group(waits.lag, function, waits.did_block, 0.0), waits.lag)
    own = run.calls.own.copy()
    own[waits.call] = np.maximum(lag, 0.0)
    return replace(
        run,
        calls=replace(run.calls, own=own),
        ops=replace(ops, latency=latency, distance=distance, source_distance=source_distance),
        waits=replace(waits, lag=lag),
    )


def _copy_length(ops: Ops) -> Int:
    """The class of each copy by its length, doubled from one to the next; 0 for all else and for short copies.

    A large copy through pageable memory is staged before it starts and unpacked after it ends: both take the longer the
    larger it is, a thousand times as long as for a copy of a few bytes.
    """
    doublings = np.zeros(len(ops.duration), dtype=np.int32)
    copies = np.flatnonzero(ops.kind == COPY)
    doublings[copies] = np.log2(np.maximum(ops.duration[copies] / SHORT_COPY_NS, 1.0)).astype(np.int32)
    return doublings


def _reasons(run: Run, identity: float, medians: float) -> list[str]:
    if not len(run.ops.op_id):
        return ["no device work in the window: nothing to replay"]
    if not (run.calls.call_id >= 0).any():
        return ["no launching call in the window: what the host did is not known"]
    reasons = []
    tied = float(run.ops.is_tied[run.ops.op_id >= 0].mean())
    if tied > MAX_TIED_SHARE:
        reasons.append(f"{tied:.0%} of the device work has no launch in the recording")
    if identity > MAX_IDENTITY_ERROR:
        reasons.append(f"the replay of the untouched run is off by {identity:.1%}")
    if medians > MAX_CLASS_MEDIAN_ERROR:
        reasons.append(f"the replay with class medians is off by {medians:.1%}")
    return reasons
