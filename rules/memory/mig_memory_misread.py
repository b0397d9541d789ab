"""Memory is read from the whole GPU where only a slice may be used, or a limit lies below what the card shows.

What happens: on a GPU divided by MIG an engine that asks NVML for the device gets the parent's size, or fails on an id of the form
`MIG-...`. It then plans for 40 or 141 GB on a slice of 20 or 16. PyTorch's own query of the driver may fail on a slice and hide the
out-of-memory error behind an assertion. A limit of the process (memory fraction, MPS, a pool of its own) has the same face: most of
the card is free and the allocation fails all the same.

How it is detected: the engine's size of the device is more than 1.2 times what CUDA (`torch.cuda.mem_get_info()`, an out-of-memory text) or the slice says; or a `MIG-` id was not
understood; or an allocation failed with more free on the device than it asked for.

When it is not this: Windows refuses with room left where its page file is full: `headroom-thin`. A small total in an out-of-memory text on a large card is normal inside a slice. A full card: the other memory
rules.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="mig-memory-misread",
    title="The size of the GPU is not the size of what may be used",
    stage=Stage.MEMORY,
    reads=("memory_refusal",),
    needs=("oom-text", "engine-log"),
)

THRESHOLDS = {
    "least_ratio": Threshold(
        1.2, "x what CUDA reports", source="vllm PR#41776: 40 GB for a slice of 20, 141 for one of 16"
    ),
}

SQL = """
SELECT refusal, framework, EXISTS (SELECT 1 FROM mig_instance) OR EXISTS (SELECT 1 FROM gpu_sample WHERE is_mig_on)
    OR EXISTS (SELECT 1 FROM refusal WHERE refusal IN ('mig_id', 'mig_named')) AS is_mig_seen
FROM refusal WHERE refusal IN ('mig_id', 'nvml_assert')
ORDER BY (refusal = 'mig_id') DESC, line_id LIMIT 1
"""


class Misread(NamedTuple):
    """A slice's name, or the driver, that was not understood."""

    refusal: str
    framework: str | None
    is_mig_seen: bool


def judge(row: Misread) -> Verdict:
    """The text names a slice, or fails on the driver's answer on a divided GPU."""
    if row.refusal == "nvml_assert" and not row.is_mig_seen:
        return None
    what = (
        "the name of a MIG slice was read as a number"
        if row.refusal == "mig_id"
        else "PyTorch's query of the driver failed on a MIG slice"
    )
    return Finding(
        summary=f"{what}: the engine asks for the parent GPU, not for the slice",
        evidence=(Evidence("message", row.refusal, "in the text"),),
        severity=Severity.CRITICAL,
        confidence=0.9,
    )


SIZE_SQL = """
WITH engine AS (
    SELECT max(bytes) AS engine_bytes FROM (
        SELECT total_bytes AS bytes FROM memory_refusal UNION ALL SELECT amount_bytes FROM engine_figure WHERE figure IN ('total_memory', 'believed_total'))
),
real AS (
    SELECT min(bytes) AS real_bytes FROM (
        SELECT total_bytes AS bytes FROM oom WHERE total_bytes IS NOT NULL UNION ALL SELECT memory_total_bytes FROM mig_instance
        UNION ALL SELECT amount_bytes FROM engine_figure WHERE figure = 'cuda_total')
)
SELECT engine_bytes, real_bytes FROM engine, real WHERE engine_bytes IS NOT NULL AND real_bytes > 0
"""


class Sizes(NamedTuple):
    """The engine's size of the device, and what CUDA or the slice says."""

    engine_bytes: int
    real_bytes: int


def judge_sizes(row: Sizes) -> Verdict:
    """The engine plans for more than there is."""
    ratio = row.engine_bytes / row.real_bytes
    if ratio < THRESHOLDS["least_ratio"].value:
        return None
    return Finding(
        summary=f"the engine counts with {format_bytes(row.engine_bytes)}, CUDA has {format_bytes(row.real_bytes)}: it has read the size of"
        " the parent GPU",
        evidence=(
            Evidence("size that the engine counts with", row.engine_bytes, "bytes"),
            Evidence("size that CUDA has", row.real_bytes, "bytes"),
            Evidence("too large by", ratio, "x"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.engine_bytes - row.real_bytes,
        confidence=0.85,
    )


CAPPED_SQL = """
SELECT tried_bytes, free_bytes, total_bytes, allocated_bytes + coalesce(unused_bytes, 0) AS held_bytes, allowed_bytes, device_id, is_accounted FROM oom_cause
WHERE cause = 'capped' AND free_bytes IS NOT NULL AND total_bytes > 0 AND tried_bytes IS NOT NULL ORDER BY source_id, oom_event_id LIMIT 1
"""


class Capped(NamedTuple):
    """A failure with room left on the device."""

    tried_bytes: int
    free_bytes: int
    total_bytes: int
    held_bytes: int | None
    allowed_bytes: int | None
    device_id: int | None
    is_accounted: bool


def judge_capped(row: Capped) -> Verdict:
    """A limit, not the card."""
    limit = f" of {format_bytes(row.allowed_bytes)}" if row.allowed_bytes is not None else " below the card's size"
    return Finding(
        summary=f"{format_bytes(row.tried_bytes)} failed with {format_bytes(row.free_bytes)} of {format_bytes(row.total_bytes)} free: a limit{limit}"
        " holds, the card is not full",
        evidence=(
            Evidence("free on the device", row.free_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("allocation that failed", row.tried_bytes, "bytes"),
            Evidence("held by PyTorch", row.held_bytes or 0, "bytes"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.free_bytes,
        confidence=0.8 if row.is_accounted else 0.6,
        label="a limit below the card's size",
        fixes=LIMIT_FIXES,
    )


LIMIT_FIXES = (
    Fix(
        "pytorch",
        "torch.cuda.set_per_process_memory_fraction(1.0), or drop the call; no torch.cuda.MemPool of a fixed size around the work",
        "the allocator may then use the whole card",
        source="https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.set_per_process_memory_fraction.html (checked on 2.13)",
    ),
    Fix(
        "system",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT (0=8G) of the MPS daemon or its client; the profile of the MIG slice (nvidia-smi mig -lgi)",
        "both cap what a client may hold",
        source="https://docs.nvidia.com/deploy/mps/index.html",
    ),
)
FIXES = (
    Fix(
        "vllm",
        "a build that asks for the slice by its UUID (PR#41776); CUDA_VISIBLE_DEVICES=MIG-<uuid>; --kv-cache-memory-bytes with the size itself",
        "the size then comes from the slice",
        source="https://github.com/vllm-project/vllm/pull/41776",
    ),
    Fix(
        "pytorch",
        "PYTORCH_ALLOC_CONF=expandable_segments:False (older: PYTORCH_CUDA_ALLOC_CONF) on MIG",
        "growing segments need driver calls that a slice may refuse",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html (checked on 2.13)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Misread,
    judge=judge,
    fixes=FIXES,
    verify="the total that the engine logs equals torch.cuda.mem_get_info()[1].",
    doc=__doc__,
    also=(
        Sign(("oom_event",), ("oom-text",), CAPPED_SQL, Capped, judge_capped),
        Sign(("engine_figure", "oom_event"), ("engine-log", "oom-text"), SIZE_SQL, Sizes, judge_sizes),
        Sign(("engine_figure",), ("engine-log", "engine-config"), SIZE_SQL, Sizes, judge_sizes),
        Sign(("memory_refusal", "mig_instance"), ("engine-log", "nvidia-smi"), SIZE_SQL, Sizes, judge_sizes),
        Sign(("engine_figure", "mig_instance"), ("engine-log", "nvidia-smi"), SIZE_SQL, Sizes, judge_sizes),
    ),
)
