"""Kernels, copies, memory sets and synchronisation records, in the words of the case file.

The process that launched the work is not in the event (its process id is the device's number); `pid` is filled in by
`launches.Launches`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from doctor.formats.kineto.columns import ids, texts, three, whole_numbers
from doctor.formats.kineto.events import TraceEvent
from doctor.formats.kineto.times import end_column, nanosecond_column

_COPY = re.compile(r"([HDP])to([HDP])(?: \((\w+) -> (\w+)\))?")
_COPY_WORDS = {"hh": "htoh", "hd": "htod", "dh": "dtoh", "dd": "dtod", "pp": "ptop"}
_LONG_COPY = re.compile(r"(Host|Device|Peer)To(Host|Device|Peer)", re.IGNORECASE)
_MEMORY_WORDS = {
    "pageable": "pageable",
    "pinned": "pinned",
    "device": "device",
    "array": "array",
    "managed": "managed",
    "device static": "device",
    "managed static": "managed",
}
_SET = re.compile(r"\(([\w ]+)\)")
_SYNC_WORDS = {
    "stream sync": "stream",
    "stream synchronize": "stream",
    "event sync": "event",
    "event synchronize": "event",
    "stream wait event": "stream_wait",
    "context sync": "context",
    "context synchronize": "context",
    "device sync": "context",
}


def _on_stream(events: Sequence[TraceEvent]) -> dict[str, pa.Array]:
    args = [event.args for event in events]
    starts = nanosecond_column([bytes(event.ts) for event in events])
    return {
        "device_id": whole_numbers(
            [event.pid if arg.device is None else arg.device for event, arg in zip(events, args, strict=True)]
        ),
        "context_id": whole_numbers([arg.context for arg in args]),
        "stream_id": ids(
            [event.tid if arg.stream is None else arg.stream for event, arg in zip(events, args, strict=True)]
        ),
        "correlation_id": whole_numbers([arg.correlation for arg in args]),
        "graph_node_id": whole_numbers([arg.graph_node or None for arg in args]),
        "start_ns": starts,
        "end_ns": end_column(starts, nanosecond_column([bytes(event.dur) for event in events])),
    }


def kernels(events: Sequence[TraceEvent]) -> pa.RecordBatch:
    """Rows of `kernel`, without `pid`; shared memory, which the trace does not tell apart, stands as dynamic."""
    names = texts([event.name for event in events])
    short = pa.array([short_kernel_name(name) for name in names.dictionary.to_pylist()], pa.string())
    args = [event.args for event in events]
    sizes = {"grid": three([arg.grid for arg in args]), "block": three([arg.block for arg in args])}
    return pa.RecordBatch.from_pydict(
        {
            **_on_stream(events),
            "name": names,
            "short_name": pa.DictionaryArray.from_arrays(names.indices, short),
            **{f"{what}_{axis}": size[at] for what, size in sizes.items() for at, axis in enumerate("xyz")},
            "registers_per_thread_count": whole_numbers([arg.registers for arg in args]),
            "dynamic_shared_bytes": whole_numbers([arg.shared_memory for arg in args]),
        }
    )


def copies(events: Sequence[TraceEvent]) -> pa.RecordBatch:
    """Rows of `memcpy`, without `pid`."""
    kinds = [copy_kinds(_text(event.name), _text(event.args.kind)) for event in events]
    return pa.RecordBatch.from_pydict(
        {
            **_on_stream(events),
            "size_bytes": whole_numbers([event.args.bytes for event in events]),
            **{
                column: pa.array([kind[at] for kind in kinds], pa.string())
                for at, column in enumerate(("copy_kind", "src_kind", "dst_kind"))
            },
        }
    )


def memory_sets(events: Sequence[TraceEvent]) -> pa.RecordBatch:
    """Rows of `memset`, without `pid`."""
    found = [_SET.search(_text(event.name)) for event in events]
    return pa.RecordBatch.from_pydict(
        {
            **_on_stream(events),
            "size_bytes": whole_numbers([event.args.bytes for event in events]),
            "memory_kind": pa.array(
                [None if match is None else _MEMORY_WORDS.get(match[1].lower()) for match in found], pa.string()
            ),
        }
    )


def synchronisations(events: Sequence[TraceEvent]) -> pa.RecordBatch:
    """Rows of `device_sync`, without `pid`."""
    return pa.RecordBatch.from_pydict(
        {
            **_on_stream(events),
            "sync_kind": pa.array([_SYNC_WORDS.get(_text(event.name).lower()) for event in events], pa.string()),
        }
    )


def collectives(events: Sequence[TraceEvent]) -> pa.RecordBatch:
    """Rows of `collective`, without `pid`, of the kernels whose recorder knew the collective behind them."""
    args = [event.args for event in events if event.args.collective is not None]
    return pa.RecordBatch.from_pydict(
        {
            "correlation_id": whole_numbers([arg.correlation for arg in args]),
            "name": texts([arg.collective for arg in args]),
            "dtype": texts([arg.dtype for arg in args]).dictionary_decode(),
            "in_count": whole_numbers([arg.elements_in for arg in args]),
            "out_count": whole_numbers([arg.elements_out for arg in args]),
            "group_size_count": whole_numbers([arg.group_size for arg in args]),
            "group_name": texts([arg.group_description or arg.group_name for arg in args]).dictionary_decode(),
        }
    )


@lru_cache(maxsize=4096)
def copy_kinds(name: str, kind: str) -> tuple[str | None, str | None, str | None]:
    """Direction, source and destination memory of a copy, out of its name and its argument `kind`.

    `Memcpy HtoD (Pageable -> Device)` says all three; `CopyHostToDevice` and HIP's `(Host -> Device)` leave the host's
    kind open.
    """
    short = _COPY.search(name) or _COPY.search(kind)
    if short is not None:
        direction = (short[1] + short[2]).lower()
        return (
            _COPY_WORDS.get(direction),
            _memory(short[3], direction[0]),
            _memory(short[4], direction[1]),
        )
    long = _LONG_COPY.search(name) or _LONG_COPY.search(kind)
    if long is None:
        return None, None, None
    direction = (long[1][0] + long[2][0]).lower()
    return _COPY_WORDS.get(direction), _memory(None, direction[0]), _memory(None, direction[1])


@lru_cache(maxsize=65536)
def short_kernel_name(name: str | None) -> str | None:
    """Function name without return type, namespaces, template arguments and parameters.

    `void at::native::(anonymous namespace)::reduce_kernel<512, 1, float>(float*)` is `reduce_kernel`.
    """
    if name is None:
        return None
    flat = _outside_brackets(name.replace("(anonymous namespace)", "anonymous"))
    return flat.rpartition("::")[2].rpartition(" ")[2] or name


def _outside_brackets(name: str) -> str:
    """The text before the parameters, with template arguments dropped."""
    kept: list[str] = []
    depth = 0
    for part in re.split(r"([<>(])", name):
        if part == "<":
            depth += 1
        elif part == ">":
            depth -= depth > 0
        elif depth == 0:
            if part == "(":
                break
            kept.append(part)
    return "".join(kept).strip()


def _memory(word: str | None, side: str) -> str | None:
    known = _MEMORY_WORDS.get((word or "").lower())
    return known or ("device" if side in ("d", "p") else None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
