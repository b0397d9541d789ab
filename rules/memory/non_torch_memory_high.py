"""Much of the run's own memory lies outside PyTorch: contexts, communication buffers, workspaces of libraries.

What happens: the CUDA context, NCCL's channels and communicators, buffers of a custom all-reduce, workspaces of cuBLAS and FlashInfer are
taken from the driver directly. PyTorch neither counts them nor can it give them back. With many ranks, groups and channels they grow to
several GiB a device.

How it is detected: what the driver counts for the process, less what PyTorch has allocated and reserved, is at least 3 GiB and 5 % of
the device; or vLLM says so (`non_torch_memory takes ...`). It is the cause of a failure where nothing more specific explains it and what
exceeds a usual 1.5 GiB would have been enough.

When it is not this: memory of other processes is no part of it: `foreign-gpu-process`. Half a GiB to 1.5 GiB are usual.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="non-torch-memory-high",
    title="Much memory lies outside PyTorch",
    stage=Stage.MEMORY,
    reads=("oom_event",),
    needs=("oom-text", "engine-log"),
)

THRESHOLDS = {
    "least_gib": Threshold(
        3, "GiB", source="usual are 0.5 to 1.5 GiB; a public text had 79.14 - 72.36 - 0.07 = 6.7 GiB"
    ),
    "least_share": Threshold(0.05, "share of the device", source="rule of thumb"),
    "usual_gib": Threshold(1.5, "GiB", source="context, cuBLAS and one NCCL communicator"),
}

SQL = """
SELECT cause, outside_bytes, own_bytes, allocated_bytes, tried_bytes, total_bytes, device_id FROM oom_cause
WHERE outside_bytes IS NOT NULL AND total_bytes > 0 AND tried_bytes IS NOT NULL
ORDER BY outside_bytes DESC LIMIT 1
"""


class Failure(NamedTuple):
    """The failure with most memory outside PyTorch."""

    cause: str
    outside_bytes: int
    own_bytes: int
    allocated_bytes: int | None
    tried_bytes: int
    total_bytes: int
    device_id: int | None


def judge(row: Failure) -> Verdict:
    """More than usual, and no other process behind it."""
    least = max(THRESHOLDS["least_gib"].value * 2**30, THRESHOLDS["least_share"].value * row.total_bytes)
    if row.outside_bytes < least or row.cause in {"foreign", "abandoned", "contexts", "spilled"}:
        return None
    excess = int(row.outside_bytes - THRESHOLDS["usual_gib"].value * 2**30)
    is_cause = row.cause == "outside" and excess >= row.tried_bytes
    return Finding(
        summary=f"{format_bytes(row.outside_bytes)} of the run's {format_bytes(row.own_bytes)} lie outside PyTorch; about"
        f" {format_bytes(THRESHOLDS['usual_gib'].value * 2**30)} are usual",
        evidence=(
            Evidence("memory outside PyTorch", row.outside_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("more than usual", excess, "bytes"),
            Evidence("allocation that failed", row.tried_bytes, "bytes"),
        ),
        severity=Severity.HIGH if is_cause else Severity.MEDIUM,
        bytes=excess,
        confidence=0.75,
    )


FIGURE_SQL = """
SELECT max(amount_bytes) AS outside_bytes, coalesce((SELECT max(amount_bytes) FROM engine_figure WHERE figure = 'total_memory'),
    (SELECT max(memory_total_bytes) FROM gpu_sample), (SELECT max(total_bytes) FROM oom)) AS total_bytes,
    EXISTS (SELECT 1 FROM oom_event WHERE own_process_bytes IS NOT NULL) AS is_told,
    EXISTS (SELECT 1 FROM starved_start WHERE cause = 'outside') AS is_starved
FROM engine_figure WHERE figure = 'non_torch'
"""


class Figure(NamedTuple):
    """What the engine says of memory outside PyTorch."""

    outside_bytes: int | None
    total_bytes: int | None
    is_told: bool
    is_starved: bool


def judge_figure(row: Figure) -> Verdict:
    """More than usual."""
    least = max(THRESHOLDS["least_gib"].value * 2**30, THRESHOLDS["least_share"].value * (row.total_bytes or 0))
    if row.outside_bytes is None or row.outside_bytes < least or row.is_told:
        return None
    so = "; nothing is left for the KV cache: vLLM counts here what others hold, too" if row.is_starved else ""
    return Finding(
        summary=f"the engine counts {format_bytes(row.outside_bytes)} outside PyTorch; about {format_bytes(THRESHOLDS['usual_gib'].value * 2**30)} are usual{so}",
        evidence=(Evidence("memory outside PyTorch", row.outside_bytes, "bytes"),),
        severity=Severity.CRITICAL if row.is_starved else Severity.MEDIUM,
        bytes=int(row.outside_bytes - THRESHOLDS["usual_gib"].value * 2**30),
        confidence=0.6,
    )


FIXES = (
    Fix(
        "system",
        "NCCL_MAX_NCHANNELS=8, NCCL_BUFFSIZE=1048576: fewer and smaller buffers",
        "each channel of each communicator holds its own buffers",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    Fix(
        "vllm",
        "--tensor-parallel-size lower, --gpu-memory-utilization lower; --disable-custom-all-reduce where its buffers are not needed",
        "fewer communicators, or room for them",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "sglang",
        "--mem-fraction-static lower; --disable-custom-all-reduce where its buffers are not needed",
        "room for them",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked on main of 2026)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Failure,
    judge=judge,
    fixes=FIXES,
    verify="what nvidia-smi counts for the process is 0.5 to 1.5 GiB above torch.cuda.memory_reserved().",
    doc=__doc__,
    also=(Sign(("engine_figure",), ("engine-log",), FIGURE_SQL, Figure, judge_figure),),
)
