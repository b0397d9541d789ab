"""Memory snapshots built from blocks, pickled as PyTorch pickles them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MIB = 2**20
GIB = 2**30


@dataclass
class SnapshotBuilder:
    """Segments with their blocks, and a history; addresses are given out in order."""

    segments: list[dict[str, Any]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    next_address: int = 1 << 40
    time_us: int = 1_700_000_000_000_000

    def frames(self, *stack: tuple[str, str]) -> list[dict[str, Any]]:
        """Python frames, innermost first: function and file of each."""
        return [{"name": function, "filename": file, "line": 10} for function, file in stack]

    def segment(
        self, blocks: Sequence[tuple[int, bool]], *, stack: Sequence[tuple[str, str]] = (), is_expandable: bool = False
    ) -> None:
        """Add a segment of these blocks: size in bytes, and whether a tensor holds it."""
        address = self.next_address
        total = sum(size for size, _ in blocks)
        self.next_address += total
        frames = self.frames(*stack)
        made = []
        at = address
        for size, is_live in blocks:
            made.append(
                {
                    "address": at,
                    "size": size,
                    "requested_size": size,
                    "state": "active_allocated" if is_live else "inactive",
                    "frames": frames if is_live else [],
                }
            )
            at += size
        live = sum(size for size, is_live in blocks if is_live)
        self.segments.append(
            {
                "device": 0,
                "address": address,
                "total_size": total,
                "allocated_size": live,
                "active_size": live,
                "requested_size": live,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": is_expandable,
                "blocks": made,
                "frames": [],
            }
        )

    def step(self, action: str, size: int, address: int, *stack: tuple[str, str], **more: int) -> None:
        """Add an entry of the history, one microsecond after the last."""
        self.time_us += 1
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.time_us}
        self.history.append({**entry, "frames": self.frames(*stack), **more})

    def pickled(self) -> bytes:
        """The file's content."""
        return pickle.dumps({"segments": self.segments, "device_traces": [self.history], "allocator_settings": {}})
