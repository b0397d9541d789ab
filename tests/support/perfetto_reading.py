"""Reads a trace of Perfetto back as its viewer does: packets by time, slices from a stack a track."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto


@dataclass(frozen=True)
class Slice:
    """One slice and the names of the tracks it lies in, outermost first."""

    tracks: tuple[str, ...]
    start_ns: int
    end_ns: int
    name: str
    category: str
    flows_out: tuple[int, ...]
    flows_in: tuple[int, ...]
    details: dict[str, int | str]


@dataclass
class PerfettoTrace:
    """Everything in one file.

    Attributes:
        slices: in order of their end.
        values: of counters, by the counter's name.
        tracks: names of the declared tracks, by id, outermost first.
    """

    slices: list[Slice] = field(default_factory=list)
    values: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    tracks: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def inside(self, word: str) -> list[Slice]:
        """Slices that lie in a track whose name begins with this word."""
        return [found for found in self.slices if any(name.startswith(word) for name in found.tracks)]


def read_perfetto(path: Path) -> PerfettoTrace:
    """The file's slices and counters; fails the test where the file breaks a rule of the format."""
    packets = list(proto.Trace.FromString(path.read_bytes()).packet)
    read = PerfettoTrace(tracks=_tracks(packets))
    names = _interned(packets, "event_names")
    categories = _interned(packets, "event_categories")
    keys = _interned(packets, "debug_annotation_names")
    open_slices: dict[int, list[proto.TracePacket]] = defaultdict(list)
    for packet in sorted((one for one in packets if one.HasField("track_event")), key=lambda one: one.timestamp):
        event = packet.track_event
        assert event.track_uuid in read.tracks, "a track that was not declared"
        if event.type == proto.TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid].append(packet)
        elif event.type == proto.TrackEvent.TYPE_SLICE_END:
            begun = open_slices[event.track_uuid].pop()
            first = begun.track_event
            read.slices.append(
                Slice(
                    read.tracks[event.track_uuid],
                    begun.timestamp,
                    packet.timestamp,
                    names[first.name_iid],
                    categories[first.category_iids[0]],
                    tuple(first.flow_ids),
                    tuple(first.terminating_flow_ids),
                    {
                        keys[one.name_iid]: one.string_value if one.HasField("string_value") else one.int_value
                        for one in first.debug_annotations
                    },
                )
            )
        else:
            read.values[read.tracks[event.track_uuid][-1]].append((packet.timestamp, event.counter_value))
    assert not any(open_slices.values()), "a slice that never ends"
    return read


def _tracks(packets: list[proto.TracePacket]) -> dict[int, tuple[str, ...]]:
    descriptors = {
        one.track_descriptor.uuid: one.track_descriptor for one in packets if one.HasField("track_descriptor")
    }
    processes = {one.process.pid: one for one in descriptors.values() if one.HasField("process")}

    def path_of(descriptor: proto.TrackDescriptor) -> tuple[str, ...]:
        if descriptor.HasField("thread"):
            return processes[descriptor.thread.pid].process.process_name, descriptor.thread.thread_name
        if descriptor.HasField("process"):
            return (descriptor.process.process_name,)
        parent = descriptors.get(descriptor.parent_uuid)
        return (*(path_of(parent) if parent is not None else ()), descriptor.name)

    return {uuid: path_of(descriptor) for uuid, descriptor in descriptors.items()}


def _interned(packets: list[proto.TracePacket], field_name: str) -> dict[int, str]:
    """Names by id; each is told before, or in, the first packet that needs it."""
    return {entry.iid: entry.name for packet in packets for entry in getattr(packet.interned_data, field_name)}
