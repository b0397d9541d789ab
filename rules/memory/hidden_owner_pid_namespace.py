"""A GPU is in use and its processes are not shown: the tool looked from inside a container.

What happens: NVML names processes by the pids of the host. Inside a pid namespace they do not exist, and `nvidia-smi` prints an
empty table of processes, which is another thing than the line `No running processes found`. The owner is there and may be the run
itself; nothing can be said about whose memory it is.

How it is detected: more than 5 % of the memory is in use, or the GPU is busy, and the table has no line; or every listed pid is
absent from /proc of the machine that was asked.

When it is not this: `No running processes found` on the host with memory in use: `orphan-or-zombie-memory`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="hidden-owner-pid-namespace",
    title="The owner of GPU memory is not visible from here",
    stage=Stage.RECORDING,
    reads=("gpu_sample",),
    needs=("nvidia-smi", "nvml"),
)

THRESHOLDS = {
    "least_share": Threshold(
        0.05, "share of the device in use", source="nvidia-docker#1460: 814 MiB and 78 % busy, no process"
    ),
    "least_busy": Threshold(0.1, "share of time busy", source="a GPU without processes is idle"),
}

SQL = """
SELECT device_id, total_bytes, used_bytes, busy_share, process_count, process_list, is_pid_namespace, absent_count
FROM device_holding WHERE used_bytes IS NOT NULL AND total_bytes > 0
ORDER BY (process_count = 0) DESC, used_bytes DESC LIMIT 1
"""


class Seen(NamedTuple):
    """What a look at a device showed."""

    device_id: int | None
    total_bytes: int
    used_bytes: int
    busy_share: float | None
    process_count: int
    process_list: str | None
    is_pid_namespace: bool
    absent_count: int


def judge(row: Seen) -> Verdict:
    """In use, and nobody to name."""
    is_busy = (row.busy_share or 0.0) >= THRESHOLDS["least_busy"].value
    is_used = row.used_bytes >= THRESHOLDS["least_share"].value * row.total_bytes or is_busy
    is_denied = row.process_list == "empty" or (row.process_list == "none" and is_busy)
    is_nameless = row.process_count == 0 and (is_denied or row.is_pid_namespace)
    is_absent = 0 < row.process_count == row.absent_count
    if not is_used or not (is_nameless or is_absent):
        return None
    shown = f"{row.process_count} pids that do not exist here" if is_absent else "no process"
    return Finding(
        summary=f"GPU {row.device_id or 0} has {format_bytes(row.used_bytes)} in use"
        f"{f' and is {row.busy_share:.0%} busy' if row.busy_share is not None else ''}, and the tool shows {shown}: it looked from inside a"
        " pid namespace",
        evidence=(
            Evidence("memory in use", row.used_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("share of time busy", row.busy_share or 0.0, "share"),
            Evidence("processes shown", row.process_count, "processes"),
        ),
        severity=Severity.INFO,
        confidence=0.85,
    )


FIXES = (
    Fix(
        "system",
        "nvidia-smi on the host, or docker run --pid=host (Kubernetes: hostPID: true)",
        "the pids of the driver then exist where the tool looks",
        source="https://github.com/NVIDIA/nvidia-docker/issues/1460",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Seen,
    judge=judge,
    fixes=FIXES,
    verify="the table names a process for the memory in use.",
    doc=__doc__,
)
