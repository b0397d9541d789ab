"""One event of a trace: the fields and arguments that are read, and the decoder that skips all others unread.

Numbers of time stay raw text, because microseconds since the epoch with nanosecond digits do not fit a double.
Everything else is typed loosely: ids come as numbers or texts, depending on version and vendor.
"""

from __future__ import annotations

from typing import Any

import msgspec

RAW_NOTHING = msgspec.Raw(b"")


class EventArgs(msgspec.Struct, frozen=True, gc=False):
    """Arguments of an event, under the names of the trace."""

    device: Any = None
    context: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None
    kind: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared_memory: Any = msgspec.field(default=None, name="shared memory")
    graph_node: Any = msgspec.field(default=None, name="graph node id")
    external_id: Any = msgspec.field(default=None, name="External id")
    old_external_id: Any = msgspec.field(default=None, name="external id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group_size: Any = msgspec.field(default=None, name="Group size")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    allocator_bytes: Any = msgspec.field(default=None, name="Bytes")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    name: Any = None
    labels: Any = None


NO_ARGS = EventArgs()


class TraceEvent(msgspec.Struct, gc=False):
    """One element of `traceEvents`; its times refer to the text that it was decoded from, and hold it in memory."""

    ph: str = ""
    cat: str = ""
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = RAW_NOTHING
    dur: msgspec.Raw = RAW_NOTHING
    args: EventArgs = NO_ARGS


EVENTS = msgspec.json.Decoder(list[TraceEvent])
"""Decodes a JSON array of events."""
