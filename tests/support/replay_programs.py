"""Small random programs, run event by event on a made-up machine: what a recorder would have written of them.

The machine is as simple as it can be and shares no code with `doctor.replay`: one loop over the host's actions, streams
that are a number each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
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


@dataclass(frozen=True)
class Thread:
    """What one launching thread does, and whose it is."""

    process: int
    actions: list[Action]


@st.composite
def programs(draw: st.DrawFn) -> list[Thread]:
    """One or two processes, each with a thread of up to 40 actions, and up to two more that launch beside them."""
    count = draw(st.integers(1, 2))
    process = [*range(count), *draw(st.lists(st.integers(0, count - 1), max_size=2))]
    return [Thread(one, draw(st.lists(actions(), min_size=1, max_size=40))) for one in process]


def record(program: list[Thread]) -> Recording:
    """Run the threads side by side, always the one whose next call comes first, and write down what happened.

    The threads of a process share its streams. A copy here is one that holds its host; an event is recorded behind the
    last but one operation of its stream.
    """
    calls: list[tuple[int, int, int, int]] = []  # start, end, thread, function
    ops: list[tuple[int, int, int, int, bool, bool]] = []  # start, end, stream, call or -1, graph, holds host
    functions = list(FUNCTIONS)
    processes = len({thread.process for thread in program})
    free = {process: [0] * STREAMS for process in range(processes)}
    before_last = {process: [0] * STREAMS for process in range(processes)}
    clock, done = [0] * len(program), [0] * len(program)
    for number, action in _in_turn(program, clock, done):
        process = program[number].process
        ended, event = free[process], before_last[process]
        start = clock[number] + action.silence
        end = start + action.own
        for place, duration in enumerate(action.durations):
            gap = 1_100 if ended[action.stream] else 0
            began = max(start + 5_000 + 700 * place, ended[action.stream] + gap)
            event[action.stream], ended[action.stream] = ended[action.stream], began + duration
            call = len(calls) if action.is_recorded else -1
            stream = process * STREAMS + action.stream
            ops.append((began, began + duration, stream, call, action.does == "graph", action.does == "copy"))
        if action.does == "copy" and action.is_recorded:
            end = max(end, ended[action.stream] + 4_000)
        if action.does == "event":
            end = max(end, event[action.stream] + 2_000 if event[action.stream] > start else end)
        if action.does in ("sync", "alloc"):
            end = max(end, max(ended) + 6_000 if max(ended) > start else end)
        calls.append((start, end, number, functions.index(action.does)))
        clock[number], done[number] = end, done[number] + 1
    return _recording(calls, ops, np.asarray([thread.process for thread in program]))


def _in_turn(program: list[Thread], clock: list[int], done: list[int]) -> Iterator[tuple[int, Action]]:
    """The number of the thread that calls next, and its action; the clocks are read again after each."""
    while waiting := [number for number, thread in enumerate(program) if done[number] < len(thread.actions)]:
        begins = {number: clock[number] + program[number].actions[done[number]].silence for number in waiting}
        number = min(waiting, key=lambda one: begins[one])
        yield number, program[number].actions[done[number]]


def _recording(
    calls: list[tuple[int, int, int, int]],
    ops: list[tuple[int, int, int, int, bool, bool]],
    process_of_thread: npt.NDArray[np.int64],
) -> Recording:
    order = sorted(range(len(calls)), key=lambda number: calls[number])
    id_of = {number: place for place, number in enumerate(order)}
    start, end, thread, function = np.asarray([calls[number] for number in order]).T
    names = np.arange(len(order))
    ops = sorted(ops)
    columns = np.asarray(ops, dtype=np.int64).reshape(len(ops), 6).T
    launched = np.asarray([id_of.get(op[3], -1) for op in ops], dtype=np.int64)
    is_graph, holds_host = columns[4].astype(np.bool_), columns[5].astype(np.bool_)
    return Recording(
        lambda: RecordedCalls(
            lambda: names,
            thread,
            process_of_thread,
            lambda: start.astype(np.float64),
            lambda: end.astype(np.float64),
            lambda: names,
            lambda: function,
        ),
        lambda: RecordedOps(
            np.arange(len(ops)),
            columns[2],
            lambda: columns[0].astype(np.float64),
            lambda: columns[1].astype(np.float64),
            lambda: launched,
            lambda: is_graph,
            lambda: np.where(holds_host, 1, 0),
            lambda: holds_host,
            lambda: np.full(len(ops), -1),
        ),
        NAMES,
        np.repeat(np.unique(process_of_thread), STREAMS),
        np.repeat(np.unique(process_of_thread), STREAMS),
    )
