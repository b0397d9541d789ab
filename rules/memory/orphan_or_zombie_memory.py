"""GPU memory is held by processes that are dead, stuck, or were left behind by a run that is over.

What happens: a worker whose parent died goes on holding its context. A process stuck in the kernel (state D, on a dead network
or FUSE mount) or a zombie whose threads still run cannot be ended, and its memory is not given back. The next start finds a GPU
that is full although nobody seems to use it.

How it is detected: either `nvidia-smi` says that no process runs, or lists none that computes on this device while it names those of
others, and at least 1 GiB and 5 % of the device is in use beyond what is listed; or the processes it lists are in state D or Z, or have lost their parent (parent pid 1) and hold that much; or an out-of-memory text names a process that the run's own log calls
down, ended or killed, or that `ps` shows so. In a container where the server itself is pid 1 its workers have a parent. It is critical where a run failed for want of memory.

When it is not this: from inside a container without the host's pids the table is empty although the owner is well:
`hidden-owner-pid-namespace`. A living job of somebody else: `foreign-gpu-process`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="orphan-or-zombie-memory",
    title="GPU memory without a living owner",
    stage=Stage.MEMORY,
    reads=("gpu_sample",),
    needs=("nvidia-smi", "nvml"),
)

THRESHOLDS = {
    "least_gib": Threshold(1, "GiB", source="drivers and contexts hold a few hundred MiB"),
    "least_share": Threshold(0.05, "share of the device", source="rule of thumb"),
    "busy_share": Threshold(
        0.05, "share of the sample period", source="the dead compute nothing; a sample may be noisy"
    ),
}

SQL = """
SELECT device_id, total_bytes, used_bytes, unlisted_bytes, compute_count AS process_count, unsized_count, driver_model,
    process_list, is_pid_namespace, stuck_bytes, stuck_count, orphan_count,
    largest_id AS pid, largest_name AS name, is_shared,
    (SELECT max(busy_share) FROM gpu_sample WHERE gpu_sample.source_id = device_holding.source_id
        AND gpu_sample.device_id IS NOT DISTINCT FROM device_holding.device_id) AS busy_share,
    (SELECT count(*) FROM host_process WHERE process_state IN ('D', 'Z')) AS stuck_host_count,
    EXISTS (SELECT 1 FROM oom_event) OR EXISTS (SELECT 1 FROM memory_refusal) AS is_blocking,
    largest_id IN (SELECT pid FROM host_process WHERE process_state = 'X') AS is_called_dead
FROM device_holding WHERE total_bytes > 0 AND used_bytes IS NOT NULL
ORDER BY greatest(stuck_bytes, CASE WHEN compute_count = 0 THEN unlisted_bytes ELSE 0 END) DESC, source_id, device_id LIMIT 1
"""


class Holding(NamedTuple):
    """The device with most memory of unclear ownership."""

    device_id: int | None
    total_bytes: int
    used_bytes: int
    unlisted_bytes: int
    process_count: int
    unsized_count: int
    driver_model: str | None
    process_list: str | None
    is_pid_namespace: bool
    stuck_bytes: int
    stuck_count: int
    orphan_count: int
    pid: int | None
    name: str | None
    is_shared: bool
    busy_share: float | None
    stuck_host_count: int
    is_blocking: bool
    is_called_dead: bool | None


def lost_bytes(row: Holding) -> int:
    """Memory whose owner does not live, as far as the evidence tells."""
    if row.is_pid_namespace or row.is_shared:
        return row.stuck_bytes
    is_at_work = (row.busy_share or 0.0) > THRESHOLDS[
        "busy_share"
    ].value  # somebody computes whom the table cannot name
    is_told = row.process_list == "listed" and row.unsized_count == 0 and row.driver_model != "wddm"
    nobody = (
        row.process_count == 0
        and not is_at_work
        and (row.process_list == "none" or is_told or row.stuck_host_count > 0)
    )
    return max(row.stuck_bytes, row.unlisted_bytes if nobody else 0)


def judge(row: Holding) -> Verdict:
    """Enough memory, and no living owner."""
    lost = lost_bytes(row)
    if lost < THRESHOLDS["least_gib"].value * 2**30 or lost < THRESHOLDS["least_share"].value * row.total_bytes:
        return None
    if row.is_called_dead:
        whose = f"process {row.pid}{f' ({row.name})' if row.name else ''} holds them, which the log calls dead"
    elif row.process_count == 0:
        whose = "no process that computes is listed for it" + (
            f", {row.stuck_host_count} processes are stuck" if row.stuck_host_count else ""
        )
    else:
        state = "is stuck in the kernel or a zombie" if row.stuck_count else "has lost its parent"
        whose = f"process {row.pid}{f' ({row.name})' if row.name else ''} {state}"
    is_sure = row.stuck_count > 0 or row.stuck_host_count > 0
    return Finding(
        summary=f"{format_bytes(lost)} of {format_bytes(row.total_bytes)} on GPU {row.device_id or 0} are in use and {whose}",
        evidence=(
            Evidence("memory without a living owner", lost, "bytes", Where(device_id=row.device_id, pid=row.pid)),
            Evidence("share of the device", lost / row.total_bytes, "share"),
            Evidence("listed processes", row.process_count, "processes"),
            Evidence("stuck or dead processes", row.stuck_count + row.stuck_host_count, "processes"),
        ),
        severity=Severity.CRITICAL if row.is_blocking else Severity.HIGH,
        bytes=lost,
        confidence=0.9 if is_sure else 0.7 if row.process_list == "none" else 0.6,
    )


TEXT_SQL = """
SELECT ended_id AS pid, ended_bytes, total_bytes, device_id, tried_bytes,
    coalesce((SELECT is_orphan AND coalesce(process_state, '') NOT IN ('D', 'Z', 'X') FROM lost_process WHERE pid = ended_id), false) AS is_orphan
FROM oom_cause
WHERE cause = 'abandoned' AND ended_bytes >= 0.5 * foreign_bytes AND total_bytes > 0
    AND NOT EXISTS (SELECT 1 FROM device_holding WHERE stuck_bytes > 0)
ORDER BY ended_bytes DESC, source_id, oom_event_id LIMIT 1
"""


class CalledDead(NamedTuple):
    """A failure in which a process that the log calls dead still holds memory."""

    pid: int
    ended_bytes: int
    total_bytes: int
    device_id: int | None
    tried_bytes: int | None
    is_orphan: bool


def judge_text(row: CalledDead) -> Verdict:
    """The message names it, and so does the line that says it went down, or the table that shows no parent."""
    state = "has lost its parent" if row.is_orphan else "is stuck, or the log calls down or ended"
    return Finding(
        summary=f"process {row.pid}, which {state}, still holds {format_bytes(row.ended_bytes)} of"
        f" {format_bytes(row.total_bytes)}: the run that followed it found no {format_bytes(row.tried_bytes or 0)}",
        evidence=(
            Evidence(
                "memory of the dead process", row.ended_bytes, "bytes", Where(device_id=row.device_id, pid=row.pid)
            ),
            Evidence("share of the device", row.ended_bytes / row.total_bytes, "share"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.ended_bytes,
        confidence=0.75,
        label=f"pid {row.pid}",
    )


LEFT_SQL = """
WITH size AS (
    SELECT max(total_bytes) AS total_bytes FROM (
        SELECT total_bytes FROM memory_refusal UNION ALL SELECT total_bytes FROM oom UNION ALL SELECT memory_total_bytes FROM gpu_sample)
)
SELECT lost.pid, any_value(lost.name) AS name, max(memory_bytes) AS lost_bytes, any_value(size.total_bytes) AS total_bytes, any_value(device_id) AS device_id,
    any_value(lost.process_state) AS process_state, any_value(is_orphan) AS is_orphan, any_value(is_worker) AS is_worker,
    EXISTS (SELECT 1 FROM oom_event) OR EXISTS (SELECT 1 FROM memory_refusal) AS is_blocking
FROM lost_process AS lost JOIN gpu_process USING (pid), size
WHERE NOT EXISTS (SELECT 1 FROM device_holding WHERE stuck_bytes > 0 AND total_bytes > 0) AND coalesce(NOT gpu_process.is_own, true)
GROUP BY lost.pid ORDER BY lost_bytes DESC NULLS LAST, lost.pid LIMIT 1
"""


class Left(NamedTuple):
    """A process that a table of devices names with its memory, and ps without a parent or stuck."""

    pid: int
    name: str | None
    lost_bytes: int | None
    total_bytes: int | None
    device_id: int | None
    process_state: str | None
    is_orphan: bool
    is_worker: bool
    is_blocking: bool


def judge_left(row: Left) -> Verdict:
    """Two tables together: who holds the memory, and that nobody waits for it any more."""
    least = max(THRESHOLDS["least_gib"].value * 2**30, THRESHOLDS["least_share"].value * (row.total_bytes or 0))
    is_stuck = row.process_state in {"D", "Z", "X"}
    if row.lost_bytes is None or row.lost_bytes < least or not (is_stuck or row.is_worker or row.is_blocking):
        return None
    why = "is stuck in the kernel, dead or a zombie" if is_stuck else "has lost its parent (it has parent 1)"
    unless = "" if is_stuck or row.is_worker else ", unless it is a service that runs on its own"
    of = f" of {format_bytes(row.total_bytes)}" if row.total_bytes else ""
    return Finding(
        summary=f"process {row.pid}{f' ({row.name})' if row.name else ''} holds {format_bytes(row.lost_bytes)}{of} and {why}{unless}",
        evidence=(
            Evidence(
                "memory without a living owner", row.lost_bytes, "bytes", Where(device_id=row.device_id, pid=row.pid)
            ),
            *((Evidence("share of the device", row.lost_bytes / row.total_bytes, "share"),) if row.total_bytes else ()),
        ),
        severity=Severity.CRITICAL if row.is_blocking else Severity.HIGH,
        bytes=row.lost_bytes,
        confidence=0.85 if is_stuck or row.is_worker else 0.5,
        label=f"pid {row.pid}",
    )


FIXES = (
    Fix(
        "system",
        "fuser -v /dev/nvidia*; end the workers that are left, by pid",
        "a process that only lost its parent ends like any other",
        source="https://github.com/xorbitsai/inference/issues/1212",
    ),
    Fix(
        "system",
        "for state D: abort the dead mount (umount -l, or echo 1 > /sys/fs/fuse/connections/N/abort), then end the process",
        "its threads wait for a file system that does not answer",
        source="https://docs.kernel.org/filesystems/fuse/fuse.html",
    ),
    Fix(
        "system",
        "nvidia-smi --gpu-reset -i N: only when nothing runs on it, by its owner",
        "the driver lets go of everything",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Holding,
    judge=judge,
    fixes=FIXES,
    verify="nvidia-smi shows less than 1 % of the memory in use.",
    doc=__doc__,
    also=(
        Sign(("oom_event",), ("oom-text",), TEXT_SQL, CalledDead, judge_text),
        Sign(("gpu_process", "host_process"), ("nvidia-smi", "nvml"), LEFT_SQL, Left, judge_left),
    ),
)
