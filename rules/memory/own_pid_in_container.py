"""A `Process N` that an out-of-memory text lists is the failing process itself, seen from a container.

What happens: the driver counts processes by the pids of the host. Inside a container the failing process has another pid, so
PyTorch does not know itself in the list and prints itself as `Process N has ... memory in use`, without the sentence about
`this process`. It looks as if somebody else had filled the GPU.

How it is detected: there is no `this process`, and one of the listed processes holds as much as PyTorch says that it has
allocated and reserved, within 2 GiB or 10 %. Nothing is wrong with that; it is said because the list invites the wrong verdict.

When it is not this: a list with `this process` in it, where all others are others: `foreign-gpu-process`. Tools that show no
process at all: `hidden-owner-pid-namespace`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="own-pid-in-container",
    title="The process that the message names is the run itself",
    stage=Stage.RECORDING,
    reads=("oom_process",),
    needs=("oom-text",),
)

THRESHOLDS = {
    "least_share": Threshold(
        0.9,
        "of what PyTorch holds",
        source="vllm#34643: 20.28 GiB listed, 19.55 GiB allocated; the rest is context and libraries",
    ),
}

SQL = """
SELECT own_listed_id AS pid, own_listed_bytes, allocated_bytes, coalesce(unused_bytes, 0) AS unused_bytes, named_foreign_bytes
FROM oom WHERE own_listed_id IS NOT NULL
ORDER BY source_id, oom_event_id LIMIT 1
"""


class Listed(NamedTuple):
    """The listed process that is the run itself."""

    pid: int
    own_listed_bytes: int
    allocated_bytes: int
    unused_bytes: int
    named_foreign_bytes: int


def judge(row: Listed) -> Verdict:
    """Say which process it is."""
    held = row.allocated_bytes + row.unused_bytes
    if row.own_listed_bytes < THRESHOLDS["least_share"].value * held:
        return None
    return Finding(
        summary=f"process {row.pid} with {format_bytes(row.own_listed_bytes)} is the failing process: PyTorch in it holds"
        f" {format_bytes(held)}; others hold {format_bytes(row.named_foreign_bytes)}",
        evidence=(
            Evidence("memory of the listed process", row.own_listed_bytes, "bytes", Where(pid=row.pid)),
            Evidence("memory that PyTorch holds", held, "bytes"),
            Evidence("memory of the other processes", row.named_foreign_bytes, "bytes"),
        ),
        severity=Severity.INFO,
        bytes=0,
        confidence=0.9,
    )


FIXES = (
    Fix(
        "system",
        "nvidia-smi on the host, or docker run --pid=host",
        "pids are then the same inside and outside",
        source="https://github.com/NVIDIA/nvidia-docker/issues/1460",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Listed,
    judge=judge,
    fixes=FIXES,
    verify="ps on the host names the pid as the engine's own worker.",
    doc=__doc__,
)
