"""Takes the profiler's own cost out of the host's times, and asks how the run would be on a quieter or noisier host.

Host times in a profile are too long: the profiler works inside calls and between them, and how fast the host was is
accidental. Both change what a cure wins. Three ways, best first:

- The user measured the same work without the profiler: all plain host times are scaled by one factor until the replay
  takes as long.
- nsys counts every call it sees, also those that it does not store, so jumps of the correlation id tell its work in
  each stretch; and `cuKernelGetName`, a call that does next to nothing, tells the host's speed at that moment. Fitted
  on one H200 host: 0.54 us per id where that probe takes 0.105 us.
- Otherwise plain host times are scaled by 0.6, the middle of what measured pairs gave (0.33 to 1.1).

Every way gives two timelines between which the truth should lie; the ends differ in how fast the host is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from doctor.case.arrays.columns import IN_CACHE, slices
from doctor.case.replay_queries import HOST_PROBE, CallNames
from doctor.case.tasks import each
from doctor.replay.cure import with_own_times
from doctor.replay.run import Calls, Flag, Int, Real, Run
from doctor.replay.schedule import Plan, replay
from doctor.replay.waiting import of_class
from doctor.units import format_ns

PHI_RANGE = (0.45, 0.80)
"""Factors on plain host times of the quick and the slow timeline; their geometric mean is 0.6."""
CONTENDED_PHI_RANGE = (0.75, 1.0)
"""The same where threads of one process launch at the same time: they wait for each other's locks most of the time,
profiler or no profiler. Nine recordings of one H200 by PyTorch's took 0.74 to 1.0 of their length without it."""
LEAST_SHARE_BESIDE = 0.1
"""Of the calls of a process's busiest thread: one with fewer is in nobody's way."""
LEAST_PHI = 0.33
"""The smallest that was measured: what a bound has to allow for."""
MEASURED_PHI_RANGE = (0.4, 1.0)
"""Bounds of the factor found from a measured time: outside, the host was in another state and the factor is noise."""
MEASURED_SPREAD = 1.1
"""The quick and the slow timeline around a measured time."""
MEASURED_LEAVES = 0.5
"""Of the logarithm of a cure's spread where the time without the profiler was measured: what a profiler and a host do
to host times is known then. On four recordings with a measured time of the same work (one H200, runs of two days) the
expected figure was within 9 % of a measured one, where the spread alone allows 30 %."""
MEASURED_FIT = 1.05
"""A measured time that no factor meets within this is the time of other work."""
BY_MEASURED_TIME = "unprofiled seconds"
HOST_STATES = (1.0, 1.7)
"""Slowness of the quick and the slow host: the same program varied by so much on the machines of the recordings."""
NS_PER_ID = 540.0
"""Profiler time for each correlation id on the quiet host."""
QUIET_PROBE_NS = 105.0
"""Mean time of `cuKernelGetName` on the quiet host."""
PROBE_EXPONENT = 0.92
"""Host slowness is the probe's slowness to this power."""
PROBE_WINDOW = 120
MIN_PROBES = 100
PROBE_CLIP_NS = 1_000.0
LEAST_SHARE_KEPT = 0.15
"""Of a silence or a call, when the profiler's part is taken out."""
LONG_SILENCE_NS = 1_000_000.0
"""Silences from here on are sleep, input or Python's own work by the clock: a quicker host does not shorten them."""
PLAIN = ("launch", "graph", "memset", "module", "event", "capture", "other")
"""Classes of calls whose time is the host's alone."""
GRAPH_CALL_NS = 10_000.0
GRAPH_NODE_NS = 250.0
"""A graph launch whose nodes are recorded one by one takes this without the profiler: a constant and a part a node."""
MODULE_INTERVAL_NS = 1_000_000.0


@dataclass(frozen=True)
class Corrected:
    """The run as it would be without the profiler.

    Attributes:
        quick: on a quick host.
        slow: on a slow host.
        method: `correlation ids and host probe`, `phi`, `unprofiled seconds`, or `none` without host calls.
        host_speed_factor: how much slower than the quiet host it was, None where the recording does not tell.
        profiler_share: share of the recorded window, None where it could not be told.
        remark: what is odd about the measured time; empty where nothing is.
        beyond: how much quicker than the quick host a host may be, in ways from the slow to the quick one.
    """

    quick: Run
    slow: Run
    method: str
    host_speed_factor: float | None
    profiler_share: float | None
    remark: str = ""
    beyond: float = 0.0

    @property
    def spread_left(self) -> float:
        """Power of a cure's spread that remains."""
        return MEASURED_LEAVES if self.method == BY_MEASURED_TIME and not self.remark else 1.0


@dataclass(frozen=True)
class Observed:
    """What corrections need to know of a recorded run: behind it the run can do without what `to_replay` lets go.

    Attributes:
        host: of each call.
        probed: where enough calls tell how fast the host was.
        recorded_ns: length of the run.
    """

    host: _Host
    probed: _Probed | None
    recorded_ns: float


@dataclass(frozen=True)
class _Probed:
    """Of each call, how slow the host was against a quiet one, and what the profiler added, in ns."""

    slowness: Real
    cost: Real


def observe(run: Run, names: CallNames) -> Observed:
    """Look at the recorded times."""
    host = _Host.of(run, names)
    if int(host.is_probe.sum()) < MIN_PROBES or not (run.calls.correlation_id >= 0).any():
        return Observed(host, None, run.recorded_ns)
    slowness = _host_slowness(run.calls, host.is_probe)
    return Observed(host, _Probed(slowness, np.float32(NS_PER_ID) * slowness * _new_ids(run)), run.recorded_ns)


def correct(run: Run, cut: Plan, observed: Observed, unprofiled_seconds: float | None) -> Corrected:
    """Choose the best way that the recording allows."""
    if not (run.calls.call_id >= 0).any():
        return Corrected(run, run, "none", None, None)
    host = observed.host
    if unprofiled_seconds is not None:
        return _by_measured_time(run, cut, observed, unprofiled_seconds * 1e9)
    if observed.probed is not None:
        return _by_correlation_ids(run, cut, observed, observed.probed)
    least, most = CONTENDED_PHI_RANGE if _is_contended(run) else PHI_RANGE
    quick, slow = each(lambda phi: _scaled(run, host, phi), (least, most))
    return Corrected(quick, slow, "phi", None, None, beyond=(least - LEAST_PHI) / (most - least))


@dataclass(frozen=True)
class _Host:
    """What the corrections need to know of each call.

    Attributes:
        is_plain: its time is the host's alone.
        is_short_silence: the silence before it is the host's too.
        is_build: code is loaded or a plan is built around it: work of the host, in which the profiler has no part.
        is_probe: it does next to nothing.
        graph_launch: positions of graph launches whose nodes are recorded.
        graph_limit: the longest time that each of these takes without the profiler.
    """

    is_plain: Flag
    is_short_silence: Flag
    is_build: Flag
    is_probe: Flag
    graph_launch: Int
    graph_limit: Real

    @staticmethod
    def of(run: Run, names: CallNames) -> _Host:
        calls = run.calls
        is_launch = of_class(calls, names, ("launch", "graph"))
        is_build = _is_module_build(calls, names, is_launch)
        is_probe = np.asarray([*(name == HOST_PROBE for name in names.base_name), False])[calls.name]
        return _Host(
            of_class(calls, names, PLAIN) & ~is_build,
            (calls.silence <= _long_silence(calls, is_launch)) & ~is_build,
            is_build,
            np.asarray(is_probe),
            *_graph_limits(run, of_class(calls, names, ("graph",))),
        )

    def shortened(self, own: Real) -> Real:
        """Own times with graph launches cut to their limits, in place."""
        own[self.graph_launch] = np.minimum(own[self.graph_launch], self.graph_limit)
        return own


def _is_contended(run: Run) -> bool:
    """True where two threads of one process launch at the same time."""
    count = np.bincount(run.calls.thread, run.calls.call_id >= 0, len(run.thread_process))
    busiest = np.zeros(int(run.thread_process.max(initial=-1)) + 1)
    np.maximum.at(busiest, run.thread_process, count)
    working = run.thread_process[count > LEAST_SHARE_BESIDE * busiest[run.thread_process]]
    return len(working) > len(np.unique(working))


def _long_silence(calls: Calls, is_launch: Flag) -> float:
    """Where a silence is long for this thread: 500 us, or 20 times the median silence before a launch."""
    before_launch = calls.silence[is_launch]
    usual = float(np.median(before_launch)) if len(before_launch) else 0.0
    return max(500_000.0, 20.0 * usual)


def _is_module_build(calls: Calls, names: CallNames, is_launch: Flag) -> Flag:
    """Calls of launch-to-launch intervals in which modules are loaded for more than 1 ms: work, not the profiler's."""
    is_module = of_class(calls, names, ("module",))
    if not is_module.any():
        return is_module
    interval = np.zeros(len(is_launch), dtype=np.int32)
    np.cumsum(is_launch[:-1], out=interval[1:])
    has_module = np.zeros(int(interval[-1]) + 1, dtype=np.bool_)
    has_module[interval[is_module]] = True
    at = np.flatnonzero(has_module[interval])  # few, of what may be millions
    length = calls.end[at] - calls.start[at]
    is_waiting = of_class(calls, names, ("sync", "alloc", "copy"))[at]
    building = np.bincount(interval[at], calls.silence[at] + np.where(is_module[at], length, 0.0))
    other = np.bincount(interval[at], np.where(is_waiting, length, 0.0))
    is_build = (building > MODULE_INTERVAL_NS) & (other < 0.5 * (building + other))
    found = np.zeros(len(is_launch), dtype=np.bool_)
    found[at] = is_build[interval[at]]
    return found


def _graph_limits(run: Run, is_graph_launch: Flag) -> tuple[Int, Real]:
    """Graph launches with recorded nodes, and the longest time that each takes without the profiler."""
    launch, nodes = np.unique(run.ops.call[run.ops.is_graph & ~run.ops.is_tied], return_counts=True)
    is_limited = is_graph_launch[launch] & (nodes > 1)
    return launch[is_limited], GRAPH_CALL_NS + GRAPH_NODE_NS * nodes[is_limited]


def _scaled(run: Run, host: _Host, phi: float) -> Run:
    """Plain host times by one factor."""
    calls = run.calls
    factor = np.float32(phi)
    own = np.multiply(calls.own, factor, out=calls.own.copy(), where=host.is_plain)
    silence = np.multiply(calls.silence, factor, out=calls.silence.copy(), where=host.is_short_silence)
    return with_own_times(run, silence, host.shortened(own))


def _by_measured_time(run: Run, cut: Plan, observed: Observed, measured_ns: float) -> Corrected:
    host, recorded_ns = observed.host, observed.recorded_ns

    def length(phi: float) -> float:
        return replay(_scaled(run, host, phi), cut).makespan_ns

    phi = _meet(length, measured_ns, *MEASURED_PHI_RANGE)
    quick, slow = phi / MEASURED_SPREAD, phi * MEASURED_SPREAD
    share = max(0.0, 1.0 - measured_ns / recorded_ns) if recorded_ns > 0 else None
    met_ns = length(phi)
    is_met = met_ns / MEASURED_FIT <= measured_ns <= met_ns * MEASURED_FIT
    remark = "" if is_met else _misfit(measured_ns, recorded_ns)
    return Corrected(_scaled(run, host, quick), _scaled(run, host, slow), BY_MEASURED_TIME, None, share, remark)


def _misfit(measured_ns: float, recorded_ns: float) -> str:
    given = f"the time given without the profiler, {format_ns(measured_ns)}"
    if measured_ns > recorded_ns:
        return f"{given}, is longer than the window of {format_ns(recorded_ns)}: it is not the time of the same work"
    return f"{given}, is less than a profiler explains in a window of {format_ns(recorded_ns)}: is it the same work?"


def _meet(length: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a growing function takes the wanted value, to about 1 %; the nearer end where it does not."""
    if length(high) <= wanted:
        return high
    if length(low) >= wanted:
        return low
    for _ in range(6):
        middle = (low + high) / 2
        low, high = (middle, high) if length(middle) < wanted else (low, middle)
    return (low + high) / 2


def _by_correlation_ids(run: Run, cut: Plan, observed: Observed, probed: _Probed) -> Corrected:
    host, slowness = observed.host, probed.slowness
    # A plan that cuDNN builds took 42 ms where the probe says 1.3 to 1.4, 52 to 62 at 1.6 to 1.8, 66 at 2.1 (eight
    # recordings of one H200): it is work as the launches are, and a cure of it wins no more on a quicker host.
    is_work = host.is_build | host.is_short_silence & (run.calls.silence < LONG_SILENCE_NS)
    left_silence, left_own = _without_profiler(run.calls, probed.cost, host.is_plain)

    def timeline(speed: Real | np.float32) -> Run:
        silence = np.divide(left_silence, speed, out=left_silence.copy(), where=is_work)
        own = np.divide(left_own, speed, out=left_own.copy(), where=host.is_plain)
        return with_own_times(run, silence, host.shortened(own))

    here = replay(timeline(np.float32(1.0)), cut).makespan_ns
    # a host quicker than the one the constants were fitted on stays as quick as it is
    speeds = [np.maximum(slowness, np.float32(1.0)) / np.float32(state) for state in HOST_STATES]
    quick, slow = each(timeline, speeds)
    share = max(0.0, 1.0 - here / observed.recorded_ns) if observed.recorded_ns > 0 else None
    factor = float(np.mean(slowness[host.is_probe]))
    return Corrected(quick, slow, "correlation ids and host probe", factor, share)


def _without_profiler(calls: Calls, cost: Real, is_plain: Flag) -> tuple[Real, Real]:
    """Take the profiler's time from the silence before each call, what is left from the call itself."""
    least = np.float32(LEAST_SHARE_KEPT)
    silence, own = np.empty_like(calls.silence), calls.own.copy()
    for part in slices(len(own), IN_CACHE):
        had = calls.silence[part]
        silence[part] = np.maximum(had - cost[part], least * had)
        rest = cost[part] - (had - silence[part])
        np.copyto(own[part], np.maximum(own[part] - rest, least * own[part]), where=is_plain[part])
    return silence, own


def _new_ids(run: Run) -> Real:
    """Correlation ids that each call and the silence before it used up; 1 where the call before it has none.

    A process counts the calls of all its threads. While the profiler works for one, others stand still that wait for
    the same lock: of their ids half are counted. Of ten recordings of one H200 by nsys, 20 to 55 % were the profiler's.
    """
    calls = run.calls
    new = _between(calls.correlation_id, calls.thread)
    if len(np.unique(run.thread_process)) == len(run.thread_process):  # a thread alone used up all ids of its process
        new[calls.call_id < 0] = 0
        return new
    in_turn = np.lexsort((calls.start, run.thread_process[calls.thread]))
    own = new.copy()
    own[in_turn] = _between(calls.correlation_id[in_turn], run.thread_process[calls.thread[in_turn]])
    new = (new + own) / 2
    new[calls.call_id < 0] = 0
    return new


def _between(ids: Int, group: Int) -> Real:
    """Ids from one row to the next of the same group, at least 1."""
    new = np.ones(len(ids), dtype=np.float32)
    is_known = (ids[1:] >= 0) & (ids[:-1] >= 0) & (group[1:] == group[:-1])
    new[1:] = np.where(is_known, np.maximum(ids[1:] - ids[:-1], 1), 1)
    return new


def _host_slowness(calls: Calls, is_probe: Flag) -> Real:
    """Rolling mean of the probe's time against the quiet host's, for each call that of the last probe before it."""
    at = np.flatnonzero(is_probe)
    probe = np.minimum(calls.end[at] - calls.start[at], PROBE_CLIP_NS)
    total = np.concatenate(([0.0], np.cumsum(probe)))
    last = np.arange(1, len(probe) + 1)
    first = np.maximum(last - PROBE_WINDOW, 0)
    mean = (total[last] - total[first]) / (last - first)
    slowness = ((np.maximum(mean, 1.0) / QUIET_PROBE_NS) ** PROBE_EXPONENT).astype(np.float32)
    until = np.append(at[1:], len(is_probe))
    return np.repeat(slowness, until - np.append(0, at[1:]))  # what lies before the first probe is the first one's
