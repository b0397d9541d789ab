"""Executes a `doctor.rule.Cure`: its SELECTs become positions in the run's arrays, its acts become changed arrays.

Acts change durations; who waits for whom stays, except where operations move to a side stream. A removed operation
stays in its place and takes no time, so that whoever awaited it now awaits what came before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import duckdb
import numpy as np

from doctor.case.arrays.columns import IN_CACHE, gather, slices
from doctor.case.replay_queries import read_rows
from doctor.errors import CatalogueError
from doctor.replay.run import Int, Ops, Real, Run, Waits, index_by_id, position_of
from doctor.rule import Act, Cure, CureStep, Target

_ON_CALLS = {Act.REMOVE, Act.NO_WAIT, Act.SCALE, Act.SET_DURATION_NS}
_ON_SILENCES = {Act.REMOVE, Act.SCALE, Act.SET_DURATION_NS}
_ON_OPS = {Act.REMOVE, Act.SCALE, Act.SET_DURATION_NS, Act.MOVE_TO_SIDE_STREAM}
_ALLOWED = {Target.HOST_CALL: _ON_CALLS, Target.SILENCE: _ON_SILENCES, Target.DEVICE_OP: _ON_OPS}
_WITH_AMOUNT = {Act.SCALE, Act.SET_DURATION_NS}


@dataclass(frozen=True)
class Change:
    """One step of a cure, its rows found.

    Attributes:
        target: what the positions are of: calls, the silences before them, or operations.
        act: what is done.
        at: positions in `Run.calls` or `Run.ops`, each once.
        amount: a factor or nanoseconds for each position, or a single one for all; empty for acts that need none.
    """

    target: Target
    act: Act
    at: Int
    amount: Real


@dataclass(frozen=True)
class Places:
    """Where the ids of a case are in one run: tables from id to position."""

    of_call: Int
    of_op: Int

    @staticmethod
    def of(run: Run) -> Places:
        """Tables of the run's calls and operations."""
        return Places(index_by_id(run.calls.call_id), index_by_id(run.ops.op_id))


def select(connection: duckdb.DuckDBPyConnection, cure: Cure, places: Places) -> tuple[Change, ...]:
    """Run the SELECTs of a cure. Rows outside the window or of other threads are left out.

    Raises:
        CatalogueError: an act does not fit its target or lacks its value, or the SELECT fails.
    """
    return tuple(_select_step(connection, step, places) for step in cure.steps)


def apply(run: Run, changes: Iterable[Change]) -> Run:
    """The run with all changes made; moves come last, since the positions of other changes are those before a move."""
    for change in sorted(changes, key=_is_move):
        if change.target is Target.DEVICE_OP:
            run = _change_ops(run, change)
        elif change.target is Target.SILENCE:
            run = _change_silences(run, change)
        else:
            run = _change_calls(run, change)
    return run


def moves_work(changes: Iterable[Change]) -> bool:
    """True where the changes alter the order of work, so that the run must be planned anew."""
    return any(_is_move(change) and len(change.at) for change in changes)


def _is_move(change: Change) -> bool:
    return change.act is Act.MOVE_TO_SIDE_STREAM


def with_own_times(run: Run, silence: Real, own: Real) -> Run:
    """The run with other host times, which become its own; launch latencies shrink and grow with their calls.

    A latency within the call is a share of the call; beyond it, the part after the call's return stays. Calls that wait
    keep their latencies: their own time comes after the wait.
    """
    calls, ops = run.calls, run.ops
    behind_waits = own[run.waits.call]
    own[run.waits.call] = calls.own[run.waits.call]
    latency = ops.latency.copy()
    for part in slices(len(latency), IN_CACHE):  # what is made on the way stays small enough for the processor's cache
        call, had = ops.call[part], latency[part]
        was, now = gather(calls.own, call), gather(own, call)
        changed = np.flatnonzero((was != now) & ~ops.is_tied[part] & np.isfinite(had))
        was, now, left = was[changed], now[changed], had[changed]
        had[changed] = np.where(left < was, left * now / np.maximum(was, 1e-9), left - was + now)
    own[run.waits.call] = behind_waits
    return replace(run, calls=replace(calls, silence=silence, own=own), ops=replace(ops, latency=latency))


def _select_step(connection: duckdb.DuckDBPyConnection, step: CureStep, places: Places) -> Change:
    if step.act not in _ALLOWED[step.target]:
        raise CatalogueError(f"a cure cannot {step.act.value} a {step.target.value}")
    named = {name: value for name, value in step.values.items() if re.search(rf"\${re.escape(name)}\b", step.sql)}
    try:
        ids, amounts = read_rows(connection, step.sql, named)
    except (duckdb.Error, ValueError, TypeError) as error:
        raise CatalogueError(f"the SELECT of a cure failed: {str(error).splitlines()[0]}") from error
    at = position_of(places.of_op if step.target is Target.DEVICE_OP else places.of_call, ids)
    amount = _amounts(step, amounts, len(at))
    if (at[1:] <= at[:-1]).any():  # mostly they come in order
        at, kept = np.unique(at, return_index=True)
        amount = amount[kept] if len(amount) > 1 else amount
    if (at < 0).any():
        is_here = at >= 0
        at, amount = at[is_here], amount[is_here] if len(amount) > 1 else amount
    return Change(step.target, step.act, at, amount)


def _amounts(step: CureStep, amounts: Real | None, count: int) -> Real:
    if step.act not in _WITH_AMOUNT:
        return np.zeros(0)
    if amounts is None and count and step.value is not None:  # not once more for each of ten million calls
        amounts = np.full(1, step.value, dtype=np.float64)
    given = np.full(count, np.nan) if amounts is None else amounts
    if step.value is not None:
        given = np.where(np.isnan(given), step.value, given)
    if np.isnan(given).any() or (given < 0).any():
        raise CatalogueError(
            f"a cure that does {step.act.value} on a {step.target.value} needs a value >= 0 for each row"
        )
    return given


def _set_times(change: Change, times: Real) -> None:
    """Change the times at the change's positions, in place."""
    if change.act is Act.REMOVE:
        times[change.at] = 0.0
        return
    new = np.multiply if change.act is Act.SCALE else np.minimum
    for part in slices(len(change.at), IN_CACHE):
        at = change.at[part]
        times[at] = new(times[at], change.amount[part] if len(change.amount) > 1 else change.amount)


def _change_silences(run: Run, change: Change) -> Run:
    silence = run.calls.silence.copy()
    _set_times(change, silence)
    return replace(run, calls=replace(run.calls, silence=silence))


def _change_calls(run: Run, change: Change) -> Run:
    waits, at_wait, amount = _waits_among(run.waits, change)
    if change.act is Act.NO_WAIT:
        return replace(run, waits=waits)
    own = run.calls.own.copy()
    if change.act is Act.SET_DURATION_NS:
        own[waits.call[at_wait]] = waits.end[at_wait] - waits.start[at_wait]  # the whole call is set, not its own part
    _set_times(change, own)
    if change.act is Act.SCALE:
        lag = waits.lag.copy()
        lag[at_wait] *= amount
        waits = replace(waits, lag=lag)
    return with_own_times(replace(run, waits=waits), run.calls.silence, own)


def _waits_among(waits: Waits, change: Change) -> tuple[Waits, Int, Real]:
    """The waits without those of the changed calls (a scaled call goes on waiting), which changed, their amounts."""
    place = np.searchsorted(change.at, waits.call)
    at_wait = np.flatnonzero(np.append(change.at, -1)[place] == waits.call)
    amount = change.amount[place[at_wait]] if len(change.amount) > 1 else change.amount
    if change.act is not Act.SCALE:
        is_active = waits.is_active.copy()
        is_active[at_wait] = False
        waits = replace(waits, is_active=is_active)
    return waits, at_wait, amount


def _change_ops(run: Run, change: Change) -> Run:
    if change.act is Act.MOVE_TO_SIDE_STREAM:
        return _move(run, change.at)
    if change.act is Act.REMOVE:
        return _without(run, change.at)
    duration = run.ops.duration.copy()
    _set_times(change, duration)
    return replace(run, ops=replace(run.ops, duration=duration))


def _without(run: Run, at: Int) -> Run:
    """Operations that take no time and hold up nobody."""
    emptied = {name: getattr(run.ops, name).copy() for name in _EMPTY}
    _empty(emptied, at)
    return replace(run, ops=replace(run.ops, **emptied), waits=_without_own_copies(run, at))


_EMPTY = {"duration": 0.0, "distance": 0.0, "latency": -np.inf, "source_distance": -np.inf}
"""Times of an operation that is gone."""


def _empty(columns: dict[str, Real], at: Int) -> None:
    for name, value in _EMPTY.items():
        columns[name][at] = value


def _without_own_copies(run: Run, at: Int) -> Waits:
    """The waits, those of copies that wait for themselves and are gone taken out."""
    waits = run.waits
    is_gone = np.zeros(len(run.ops.op_id), dtype=np.bool_)
    is_gone[at] = True
    awaits_itself = waits.is_own_copy & is_gone[waits.op[waits.first[:-1]]] if len(waits.call) else waits.is_own_copy
    return replace(waits, is_active=waits.is_active & ~awaits_itself)


def _move(run: Run, at: Int) -> Run:
    """Operations on a new stream of their device, in order of start, behind their own launches only."""
    if not len(at):
        return run
    ops = run.ops
    device = run.stream_device[ops.stream[at]]
    at = at[np.lexsort((ops.start[at], device))]
    device = run.stream_device[ops.stream[at]]
    devices, side = np.unique(device, return_inverse=True)
    stream = (len(run.stream_device) + side).astype(ops.stream.dtype)
    columns = {name: getattr(ops, name) for name in ops.__dataclass_fields__}
    moved = {name: values[at] if len(values) else values for name, values in columns.items()}  # ends were let go
    moved |= {
        "stream": stream,
        "distance": np.zeros(len(at), dtype=ops.distance.dtype),
        "source": np.full(len(at), -1, dtype=ops.source.dtype),
        "source_distance": np.zeros(len(at), dtype=ops.source_distance.dtype),
    }
    joined = {name: np.concatenate((columns[name], moved.pop(name))) for name in tuple(moved)}
    _empty(joined, at)
    return replace(
        run,
        ops=Ops(**joined),
        waits=_without_own_copies(run, at),
        stream_device=np.concatenate((run.stream_device, devices)),
    )
