"""Writes packets of a Perfetto trace one after the other: memory is bounded by a batch and the distinct names."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import IO, Self

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

_SEQUENCE = 1
_BATCH_PACKETS = 4096
_CLEARED = proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
_NEEDED = proto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
_BEGIN, _END, _COUNTER = (
    proto.TrackEvent.TYPE_SLICE_BEGIN,
    proto.TrackEvent.TYPE_SLICE_END,
    proto.TrackEvent.TYPE_COUNTER,
)


class PacketWriter:
    """One sequence of packets; a context, whose end writes what is left.

    Names and categories are interned: written once, then referred to. A message of protobuf may be written in pieces,
    so every batch of packets is a `Trace` of its own and the file is their concatenation.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._batch = proto.Trace()
        self._names: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._detail_names: dict[str, int] = {}
        self._num_tracks = 0
        first = self._packet(_CLEARED)
        first.first_packet_on_sequence = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()

    def track(self, name: str, parent: int | None = None, *, rank: int | None = None) -> int:
        """Declare a track and return its id; those with a `rank` stand in its order under an `ordered_track`."""
        descriptor = self._descriptor(parent)
        descriptor.name = name
        if rank is not None:
            descriptor.sibling_order_rank = rank
        return int(descriptor.uuid)

    def ordered_track(self, name: str) -> int:
        """Declare a track whose children say in which order they stand."""
        descriptor = self._descriptor(None)
        descriptor.name = name
        descriptor.child_ordering = proto.TrackDescriptor.EXPLICIT
        return int(descriptor.uuid)

    def process_track(self, pid: int, name: str) -> int:
        """Declare the group of a process."""
        descriptor = self._descriptor(None)
        descriptor.process.pid = _int32(pid)
        descriptor.process.process_name = name
        return int(descriptor.uuid)

    def thread_track(self, pid: int, tid: int, name: str) -> int:
        """Declare the row of a thread inside its process."""
        descriptor = self._descriptor(None)
        descriptor.thread.pid = _int32(pid)
        descriptor.thread.tid = tid
        descriptor.thread.thread_name = name
        return int(descriptor.uuid)

    def counter_track(self, name: str, *, is_bytes: bool) -> int:
        """Declare a row that shows a number over time."""
        descriptor = self._descriptor(None)
        descriptor.name = name
        unit = proto.CounterDescriptor
        descriptor.counter.unit = unit.UNIT_SIZE_BYTES if is_bytes else unit.UNIT_COUNT
        return int(descriptor.uuid)

    def slice(
        self,
        track: int,
        span_ns: tuple[int, int],
        name: str,
        category: str,
        *,
        flow: tuple[int, bool] | None = None,
        details: Iterable[tuple[str, int | str | None]] = (),
    ) -> None:
        """Write the beginning and the end of a slice.

        Args:
            track: id of its row.
            span_ns: start and end; never below zero.
            name: of the work.
            category: such as `gemm` or `launch`.
            flow: id of an arrow, and True where it ends here.
            details: by name; what is None is left out.
        """
        packet = self._packet(_NEEDED)
        packet.timestamp = span_ns[0]
        event = packet.track_event
        event.type = _BEGIN
        event.track_uuid = track
        event.name_iid = self._interned(packet, "event_names", self._names, name)
        event.category_iids.append(self._interned(packet, "event_categories", self._categories, category))
        if flow is not None:
            (event.terminating_flow_ids if flow[1] else event.flow_ids).append(flow[0])
        for key, value in details:
            if value is not None:
                self._detail(packet, event, key, value)
        packet = self._packet(_NEEDED)
        packet.timestamp = span_ns[1]
        packet.track_event.type = _END
        packet.track_event.track_uuid = track

    def count(self, track: int, time_ns: int, value: float) -> None:
        """Write one value of a counter."""
        packet = self._packet(_NEEDED)
        packet.timestamp = time_ns
        packet.track_event.type = _COUNTER
        packet.track_event.track_uuid = track
        if isinstance(value, int):
            packet.track_event.counter_value = value
        else:
            packet.track_event.double_counter_value = value

    def _descriptor(self, parent: int | None) -> proto.TrackDescriptor:
        self._num_tracks += 1
        descriptor = self._packet(0).track_descriptor
        descriptor.uuid = self._num_tracks
        if parent is not None:
            descriptor.parent_uuid = parent
        return descriptor

    def _detail(self, packet: proto.TracePacket, event: proto.TrackEvent, key: str, value: int | str) -> None:
        detail = event.debug_annotations.add()
        detail.name_iid = self._interned(packet, "debug_annotation_names", self._detail_names, key)
        if isinstance(value, int):
            detail.int_value = value
        else:
            detail.string_value = value

    def _interned(self, packet: proto.TracePacket, field: str, known: dict[str, int], text: str) -> int:
        found = known.get(text)
        if found is None:
            found = known[text] = len(known) + 1
            entry = getattr(packet.interned_data, field).add()
            entry.iid = found
            entry.name = text
        return found

    def _packet(self, flags: int) -> proto.TracePacket:
        if len(self._batch.packet) >= _BATCH_PACKETS:
            self._flush()
        packet = self._batch.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if flags:
            packet.sequence_flags = flags
        return packet

    def _flush(self) -> None:
        self._file.write(self._batch.SerializeToString())
        self._batch = proto.Trace()


def _int32(pid: int) -> int:
    return pid & 0x7FFFFFFF
