"""Enough memory is free inside the allocator, in pieces too small for the request.

What happens: PyTorch takes memory from the driver in segments and cuts blocks out of them. A segment that holds one live block cannot
be given back, however little of it is used, and a large tensor finds no piece that is long enough. Changing sizes, sleep and wake, and
offloading back and forth bring it about.

How it is detected: an out-of-memory text where what is reserved but unallocated is no less than what was asked for, and at least 1 GiB
and 5 % of the device; or, less surely, where only both together, the unused and the free memory, would have been enough: cached
segments are given back before a failure, so that what is left lies beside live blocks. In a snapshot: free memory in segments that also hold live blocks is enough for the request and its longest
piece is not; or it is at least 1 GiB and a fifth of all that is reserved, in pieces of which the longest has less than half. In torch.cuda.memory_summary():
non-releasable memory of that size, and a failure.

When it is not this: a full card always has some slack: less than the request clears this rule, whatever the message advises. Segments
that grow in place (expandable) show as one huge segment and are left out. Wholly free segments are given back before a failure.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="fragmentation",
    title="Free memory is cut into pieces that are too small",
    stage=Stage.MEMORY,
    reads=("oom_event",),
    needs=("oom-text", "memory-snapshot"),
)

THRESHOLDS = {
    "least_gib": Threshold(1, "GiB", source="SkyRL PR#1768: 20 GiB of 183"),
    "least_share": Threshold(0.05, "share of the device", source="SkyRL PR#1768: 11 %"),
    "waste_share": Threshold(0.2, "share of what is reserved", source="pytorch#35901: 11.1 of 11.6 GB"),
    "most_of_waste": Threshold(
        0.5, "share of the free memory in its longest piece", source="one long piece serves a large request"
    ),
}

SQL = """
SELECT cause, device_id, tried_bytes, total_bytes, unused_bytes, free_bytes FROM oom_cause
WHERE unused_bytes IS NOT NULL AND tried_bytes IS NOT NULL AND total_bytes > 0
ORDER BY (cause = 'fragmentation') DESC, unused_bytes - tried_bytes DESC LIMIT 1
"""


class Failure(NamedTuple):
    """The failure with most unused memory against its request."""

    cause: str
    device_id: int | None
    tried_bytes: int
    total_bytes: int
    unused_bytes: int
    free_bytes: int | None


def judge(row: Failure) -> Verdict:
    """More is unused than was asked for."""
    if row.cause == "fragmentation":
        is_enough = row.unused_bytes >= row.tried_bytes
        free = "" if is_enough else f" and {format_bytes(row.free_bytes or 0)} are free outside of it"
        return Finding(
            summary=f"{format_bytes(row.unused_bytes)} lie unused inside PyTorch's allocator{free} while {format_bytes(row.tried_bytes)} in one piece failed",
            evidence=(
                Evidence("reserved and unallocated", row.unused_bytes, "bytes", Where(device_id=row.device_id)),
                Evidence("allocation that failed", row.tried_bytes, "bytes"),
                Evidence("share of the device", row.unused_bytes / row.total_bytes, "share"),
            ),
            severity=Severity.CRITICAL if is_enough else Severity.HIGH,
            bytes=row.unused_bytes,
            confidence=0.9 if is_enough else 0.6,
        )
    if row.unused_bytes < row.tried_bytes:
        return Cleared(
            f"{format_bytes(row.unused_bytes)} are reserved and unallocated, less than the {format_bytes(row.tried_bytes)} that were asked for"
        )
    least = max(THRESHOLDS["least_gib"].value * 2**30, THRESHOLDS["least_share"].value * row.total_bytes)
    if row.unused_bytes < least:
        return Cleared(
            f"{format_bytes(row.unused_bytes)} are reserved and unallocated, less than {format_bytes(least)}: the slack of a full card"
        )
    return Cleared(
        f"{format_bytes(row.unused_bytes)} are reserved and unallocated, but something else fills the device"
    )


SNAPSHOT_SQL = """
SELECT device_id, reserved_bytes, pinned_free_bytes, largest_pinned_bytes, requested_bytes, total_bytes, expandable_bytes,
    EXISTS (SELECT 1 FROM oom_cause WHERE cause <> 'fragmentation') AS is_explained
FROM snapshot_memory ORDER BY pinned_free_bytes DESC LIMIT 1
"""


class Snapshot(NamedTuple):
    """Free memory of a snapshot that cannot be given back."""

    device_id: int | None
    reserved_bytes: int
    pinned_free_bytes: int
    largest_pinned_bytes: int
    requested_bytes: int | None
    total_bytes: int
    expandable_bytes: int
    is_explained: bool


def judge_snapshot(row: Snapshot) -> Verdict:
    """Free memory that fits no request."""
    is_short = (
        row.requested_bytes is not None and row.largest_pinned_bytes < row.requested_bytes <= row.pinned_free_bytes
    )
    is_much = row.pinned_free_bytes >= max(
        THRESHOLDS["least_gib"].value * 2**30, THRESHOLDS["least_share"].value * row.total_bytes
    )
    is_waste = (
        row.pinned_free_bytes >= THRESHOLDS["waste_share"].value * row.reserved_bytes
        and row.largest_pinned_bytes <= THRESHOLDS["most_of_waste"].value * row.pinned_free_bytes
    )
    if not is_much or row.is_explained or not (is_short or is_waste):
        if row.requested_bytes is not None:  # the failure is judged already, by the same figures
            return None
        return Cleared(
            f"the snapshot has {format_bytes(row.pinned_free_bytes)} free in segments that cannot be given back, the longest piece"
            f" {format_bytes(row.largest_pinned_bytes)}"
        )
    request = f", and {format_bytes(row.requested_bytes)} were asked for" if is_short and row.requested_bytes else ""
    return Finding(
        summary=f"{format_bytes(row.pinned_free_bytes)} are free in segments that live blocks hold, in pieces of {format_bytes(row.largest_pinned_bytes)}"
        f" at most{request}",
        evidence=(
            Evidence(
                "free and held back by live blocks", row.pinned_free_bytes, "bytes", Where(device_id=row.device_id)
            ),
            Evidence("longest free piece", row.largest_pinned_bytes, "bytes"),
            Evidence("share of what is reserved", row.pinned_free_bytes / max(row.reserved_bytes, 1), "share"),
            *((Evidence("allocation that failed", row.requested_bytes, "bytes"),) if row.requested_bytes else ()),
        ),
        severity=Severity.CRITICAL if is_short else Severity.HIGH,
        bytes=row.pinned_free_bytes,
        confidence=0.85,
    )


SUMMARY_SQL = """
SELECT device_id, reserved_bytes, unreleasable_bytes, coalesce(oom_count, 0) AS oom_count,
    EXISTS (SELECT 1 FROM oom_cause WHERE cause <> 'fragmentation') AS is_explained
FROM allocator_summary WHERE reserved_bytes > 0 AND unreleasable_bytes IS NOT NULL
ORDER BY unreleasable_bytes DESC LIMIT 1
"""


class Summary(NamedTuple):
    """What torch.cuda.memory_summary() says of memory that is free and cannot be given back."""

    device_id: int | None
    reserved_bytes: int
    unreleasable_bytes: int
    oom_count: int
    is_explained: bool


def judge_summary(row: Summary) -> Verdict:
    """Much is free beside live blocks, and an allocation has failed."""
    share = row.unreleasable_bytes / row.reserved_bytes
    is_much = (
        row.unreleasable_bytes >= THRESHOLDS["least_gib"].value * 2**30 and share >= THRESHOLDS["waste_share"].value
    )
    if not is_much or not row.oom_count or row.is_explained:
        return Cleared(
            f"{format_bytes(row.unreleasable_bytes)} ({share:.0%} of what is reserved) are free and cannot be given back"
        )
    return Finding(
        summary=f"{format_bytes(row.unreleasable_bytes)} of {format_bytes(row.reserved_bytes)} reserved are free in segments that live blocks hold"
        f" ({share:.0%}), and an allocation has failed",
        evidence=(
            Evidence(
                "free and held back by live blocks", row.unreleasable_bytes, "bytes", Where(device_id=row.device_id)
            ),
            Evidence("share of what is reserved", share, "share"),
            Evidence("failures", row.oom_count, "failures"),
        ),
        severity=Severity.HIGH,
        bytes=row.unreleasable_bytes,
        confidence=0.65,
    )


FIXES = (
    Fix(
        "pytorch",
        "PYTORCH_ALLOC_CONF=expandable_segments:True (older: PYTORCH_CUDA_ALLOC_CONF); not with MIG, not around weights shared by CUDA IPC",
        "segments grow in place and give their holes back",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html (checked on 2.13, both names), https://github.com/NovaSky-AI/SkyRL/pull/1768",
    ),
    Fix(
        "pytorch",
        "PYTORCH_ALLOC_CONF=max_split_size_mb:512, where segments must not grow",
        "large blocks are not cut for small tensors",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html (checked on 2.13)",
    ),
    Fix(
        "pytorch",
        "make long-lived tensors first, before the large temporary ones",
        "no small block then sits in a large segment",
        source="https://github.com/pytorch/pytorch/issues/35901",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Failure,
    judge=judge,
    fixes=FIXES,
    verify="reserved but unallocated memory stays under 2 % of the device, and the request succeeds.",
    doc=__doc__,
    also=(
        Sign(("allocator_block",), ("memory-snapshot",), SNAPSHOT_SQL, Snapshot, judge_snapshot),
        Sign(("allocator_summary",), ("memory-snapshot",), SUMMARY_SQL, Summary, judge_summary),
    ),
)
