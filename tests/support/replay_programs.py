"""Small random programs, run event by event on a made-up machine: what a recorder would have written of them.

The machine is as simple as it can be and shares no code with `doctor.replay`: one loop over the host's actions, streams
that are a number each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from doctor.case.replay_queries import CallNames, RecordedCalls, RecordedOps, Recording

FUNCTIONS = {
    "launch": ("cudaLaunchKernel", "launch"),
    "graph": ("cudaGraphLaunch", "graph"),
    "sync": ("cudaDeviceSynchronize", "sync"),
    "event": ("cudaEventSynchronize", "sync"),
    "copy": ("cudaMemcpyAsync", "copy"),
    "alloc": ("cudaFree", "alloc"),
    "other": ("cuKernelGetName", "other"),
}
NAMES = CallNames(
    np.arange(len(FUNCTIONS)),
    tuple(name for name, _ in FUNCTIONS.values()),
    tuple(call_class for _, call_class in FUNCTIONS.values()),
    np.zeros(len(FUNCTIONS), dtype=np.bool_),
)
STREAMS = 3


@dataclass(frozen=True)
class Action:
    """One host call: what it does, the silence before it, its own time, and the work it launches.

    Attributes:
        does: a key of `FUNCTIONS`.
        silence: ns.
        own: ns.
        stream: where the work goes.
        durations: of the operations that it launches, ns.
        is_recorded: false loses the launch record.
    """

    does: str
    silence: int
    own: int
    stream: int
    durations: tuple[int, ...]
    is_recorded: bool


@st.composite
def actions(draw: st.DrawFn) -> Action:
    """A random action; work fits its kind."""
    does = draw(st.sampled_from(list(FUNCTIONS)))
    durations = st.integers(200, 200_000)
    count = {"launch": (1, 1), "copy": (1, 1), "graph": (1, 5)}.get(does, (0, 0))
    return Action(
        does,
        draw(st.integers(0, 60_000)),
        draw(st.integers(500, 30_000)),
        draw(st.integers(0, STREAMS - 1)),
        tuple(draw(st.lists(durations, min_size=count[0], max_size=count[1]))),
        draw(st.integers(0, 9)) > 0,
    )


def programs() -> st.SearchStrategy[list[list[Action]]]:
    """One or two processes of up to 40 actions."""
    return st.lists(st.lists(actions(), min_size=1, max_size=40), min_size=1, max_size=2)


def record(program: list[list[Action]]) -> Recording:
    """Run the processes side by side and write down what happened.

    A copy here is one that holds its host; an event is recorded behind the last but one operation of its stream.
    """
    calls: list[tuple[int, int, int, int]] = []  # start, end, process, function
    ops: list[tuple[int, int, int, int, bool, bool]] = []  # start, end, stream, call or -1, graph, holds host
    functions = list(FUNCTIONS)
    for process, thread in enumerate(program):
        clock, free = 0, [0] * STREAMS
        before_last = [0] * STREAMS
        for action in thread:
            start = clock + action.silence
            end = start + action.own
            for place, duration in enumerate(action.durations):
                gap = 1_100 if free[action.stream] else 0
                began = max(start + 5_000 + 700 * place, free[action.stream] + gap)
                before_last[action.stream], free[action.stream] = free[action.stream], began + duration
                number = len(calls) if action.is_recorded else -1
                stream = process * STREAMS + action.stream
                ops.append((began, began + duration, stream, number, action.does == "graph", action.does == "copy"))
            if action.does == "copy" and action.is_recorded:
                end = max(end, free[action.stream] + 4_000)
            if action.does == "event":
                end = max(end, before_last[action.stream] + 2_000 if before_last[action.stream] > start else end)
            if action.does in ("sync", "alloc"):
                end = max(end, max(free) + 6_000 if max(free) > start else end)
            calls.append((start, end, process, functions.index(action.does)))
            clock = end
    return _recording(calls, ops, len(program))


def _recording(
    calls: list[tuple[int, int, int, int]], ops: list[tuple[int, int, int, int, bool, bool]], processes: int
) -> Recording:
    order = sorted(range(len(calls)), key=lambda number: calls[number])
    id_of = {number: place for place, number in enumerate(order)}
    start, end, process, function = np.asarray([calls[number] for number in order]).T
    names = np.arange(len(order))
    ops = sorted(ops)
    columns = np.asarray(ops, dtype=np.int64).reshape(len(ops), 6).T
    launched = np.asarray([id_of.get(op[3], -1) for op in ops], dtype=np.int64)
    is_graph, holds_host = columns[4].astype(np.bool_), columns[5].astype(np.bool_)
    return Recording(
        lambda: RecordedCalls(
            names, process, np.arange(processes), start.astype(np.float64), end.astype(np.float64), names, function
        ),
        lambda: RecordedOps(
            np.arange(len(ops)),
            columns[2],
            columns[0].astype(np.float64),
            columns[1].astype(np.float64),
            launched,
            is_graph,
            np.where(holds_host, 1, 0),
            holds_host,
            np.full(len(ops), -1),
        ),
        NAMES,
        np.repeat(np.arange(processes), STREAMS),
        np.repeat(np.arange(processes), STREAMS),
    )
