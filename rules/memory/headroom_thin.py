"""The device is full to the last percent: allocations fail at once, or only after cached memory was given back.

What happens: with nothing to spare, every change (a longer prompt, a new shape, a library's workspace) makes the allocator free its
cache, wait for the device and ask the driver again. That costs milliseconds each time, and ends in a failure some day.

How it is detected: an allocation failed, the process itself holds the device, and nothing more specific explains it; or the driver
refused with room left and lists nobody, which is said with little confidence. Or 98.5 % of the
device and more is in use while it works. Or the allocator says that it had to try again (`cudaMalloc retries`, or the warning
`memory allocation failed with OOM on device`, which is no failure by itself).

When it is not this: whatever else explains a failure is told instead, or stands before this one, which is never more than high. An engine that has taken its share for the KV cache on purpose,
90 % of the device or so, has headroom.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="headroom-thin",
    title="The device is full",
    stage=Stage.MEMORY,
    reads=("oom_event",),
    needs=("oom-text", "nvidia-smi", "nvml", "memory-snapshot"),
)

THRESHOLDS = {
    "least_free_share": Threshold(
        0.015, "share of the device", source="rule of thumb: a context or a workspace is 0.5 to 1.5 GiB"
    ),
    "least_busy": Threshold(0.1, "share of time busy", source="an idle device wants no more memory"),
    "grave_retries": Threshold(10, "retries", source="rule of thumb: then it is a steady state"),
}

SQL = """
SELECT cause, tried_bytes, nullif(total_bytes, 0) AS total_bytes, allocated_bytes, free_bytes, own_bytes, outside_bytes, foreign_bytes, device_id, phase,
    EXISTS (SELECT 1 FROM engine_choice WHERE setting = 'dtype' AND told = 'float32') AS is_fp32,
    (SELECT stack FROM memory_by_stack WHERE stack IS NOT NULL LIMIT 1) AS stack,
    (SELECT held_bytes FROM memory_by_stack WHERE stack IS NOT NULL LIMIT 1) AS held_bytes
FROM oom_cause
ORDER BY (cause = 'full') DESC, (cause = 'pool') DESC, (cause = 'refused') DESC, source_id, oom_event_id LIMIT 1
"""


class Failure(NamedTuple):
    """A failure that nothing more specific explains."""

    cause: str
    tried_bytes: int | None
    total_bytes: int | None
    allocated_bytes: int | None
    free_bytes: int | None
    own_bytes: int | None
    outside_bytes: int | None
    foreign_bytes: int
    device_id: int | None
    phase: str | None
    is_fp32: bool
    stack: str | None
    held_bytes: int | None


def judge(row: Failure) -> Verdict:
    """Full by its own tensors, or full and nobody says by whom."""
    if row.cause == "unknown" or (row.cause == "pool" and row.total_bytes is None):
        return _without_figures(row)
    if row.cause == "refused":
        return _refused(row)
    if row.cause not in {"full", "pool"} or row.total_bytes is None or row.tried_bytes is None:
        return None
    what = "the KV pool that the engine has sized itself" if row.cause == "pool" else "the run's own tensors"
    held = f"{format_bytes(row.allocated_bytes or 0)} of {format_bytes(row.total_bytes)} are allocated"
    if row.allocated_bytes is None:  # a message that was cut
        what = "the process"
        held = f"it has {format_bytes(row.total_bytes)}"
        if row.free_bytes is not None:
            held = f"{format_bytes(row.free_bytes)} of {format_bytes(row.total_bytes)} are free"
    elif row.allocated_bytes > row.total_bytes:
        return _more_than_there_is(row)
    one = row.cause == "pool" or row.allocated_bytes is None
    return Finding(
        summary=f"{what} fill{'s' if one else ''} the device: {held}, and {format_bytes(row.tried_bytes)} more do not fit",
        evidence=(
            Evidence("allocation that failed", row.tried_bytes, "bytes", Where(device_id=row.device_id)),
            *(
                Evidence(name, size, "bytes")
                for name, size in (("allocated by PyTorch", row.allocated_bytes), ("free", row.free_bytes))
                if size is not None
            ),
            *((Evidence("held by others", row.foreign_bytes, "bytes"),) if row.foreign_bytes >= 2**29 else ()),
            *(
                (Evidence("stack that holds most", row.stack, ""), Evidence("held by it", row.held_bytes or 0, "bytes"))
                if row.stack
                else ()
            ),
        ),
        severity=Severity.MEDIUM
        if row.is_fp32
        else Severity.HIGH,  # half of it would do: wrong-dtype-fp32 stands before this
        bytes=row.tried_bytes,
        confidence=0.7 if row.stack else 0.5,
        label=f"by {what}",
    )


def _without_figures(row: Failure) -> Finding:
    """A message that says at most what was asked for, and at best in which phase."""
    is_pool = row.cause == "pool"
    what = format_bytes(row.tried_bytes) if row.tried_bytes else "memory"
    missing = "does not say of how much" if row.tried_bytes else "has no figures"
    return Finding(
        summary="the driver refused memory for the KV pool that the engine has sized itself"
        if is_pool
        else f"the driver refused {what}; the message {missing}, so that nothing says who holds the device",
        evidence=(Evidence("figures in the message", int(row.tried_bytes is not None), "figures"),),
        severity=Severity.HIGH,
        confidence=0.6 if is_pool else 0.3,
        label="by the KV pool that the engine has sized itself" if is_pool else "nobody says by whom",
    )


def _more_than_there_is(row: Failure) -> Finding:
    """No sign of Windows, which would have spilled: managed memory, or figures of two devices in one text."""
    return Finding(
        summary=f"the text says that {format_bytes(row.allocated_bytes or 0)} are allocated on a device of {format_bytes(row.total_bytes or 0)}: managed"
        " memory, or figures that do not belong together; nothing in it tells of Windows, where memory would have spilled",
        evidence=(
            Evidence("allocated by PyTorch", row.allocated_bytes or 0, "bytes", Where(device_id=row.device_id)),
            Evidence("size of the device", row.total_bytes or 0, "bytes"),
        ),
        severity=Severity.HIGH,
        bytes=row.tried_bytes,
        confidence=0.3,
        label="more is allocated than there is",
    )


def _refused(row: Failure) -> Finding:
    """Refused by a driver that lists nobody, with room left: nothing in the text says why."""
    return Finding(
        summary=f"the driver refused {format_bytes(row.tried_bytes or 0)} with {format_bytes(row.free_bytes or 0)} of {format_bytes(row.total_bytes or 0)} free:"
        " the device is not full, and the message does not say what is",
        evidence=(
            Evidence("free on the device", row.free_bytes or 0, "bytes", Where(device_id=row.device_id)),
            Evidence("allocation that failed", row.tried_bytes or 0, "bytes"),
            Evidence("allocated by PyTorch", row.allocated_bytes or 0, "bytes"),
        ),
        severity=Severity.HIGH,
        bytes=row.tried_bytes,
        confidence=0.4,
        label="refused with room left",
        fixes=REFUSED_FIXES,
    )


HIDDEN_SQL = """
SELECT count(*) AS failure_count FROM refusal WHERE refusal = 'nvml_assert'
    AND NOT EXISTS (SELECT 1 FROM refusal AS slice WHERE slice.refusal IN ('mig_id', 'mig_named'))
    AND NOT EXISTS (SELECT 1 FROM mig_instance) AND NOT EXISTS (SELECT 1 FROM oom)
"""


class Hidden(NamedTuple):
    """Failures whose report failed."""

    failure_count: int


def judge_hidden(row: Hidden) -> Verdict:
    """The allocator asks the driver who holds the device only after an allocation has failed."""
    if row.failure_count == 0:
        return None
    return Finding(
        summary="an allocation failed, and so did the allocator's question to the driver who holds the device: out of memory, without figures",
        evidence=(Evidence("failures", row.failure_count, "failures"),),
        severity=Severity.HIGH,
        confidence=0.5,
        label="the report of it failed too",
    )


SHARE_SQL = "SELECT engine, free_bytes, total_bytes FROM starved_start WHERE cause = 'share'"


class Share(NamedTuple):
    """A start whose KV pool could not be made although much was free."""

    engine: str | None
    free_bytes: int
    total_bytes: int


def judge_share(row: Share) -> Verdict:
    """The pool is a share of what is free, and leaves too little for what comes with it."""
    return Finding(
        summary=f"the KV pool could not be made with {format_bytes(row.free_bytes)} of {format_bytes(row.total_bytes)} free: it is sized as a share of"
        " what is free, and leaves too little beside it",
        evidence=(
            Evidence("free before the pool", row.free_bytes, "bytes"),
            Evidence("share of the device", row.free_bytes / row.total_bytes, "share"),
        ),
        severity=Severity.CRITICAL,
        confidence=0.65,
        label="by the KV pool that the engine has sized itself",
    )


USED_SQL = """
SELECT device_id, total_bytes, used_bytes, busy_share, driver_model, EXISTS (SELECT 1 FROM oom_event) OR EXISTS (SELECT 1 FROM memory_refusal) AS is_told
FROM device_holding WHERE total_bytes > 0 AND used_bytes IS NOT NULL
ORDER BY used_bytes / total_bytes DESC LIMIT 1
"""


class Used(NamedTuple):
    """The fullest device at its fullest look."""

    device_id: int | None
    total_bytes: int
    used_bytes: int
    busy_share: float | None
    driver_model: str | None
    is_told: bool


def judge_used(row: Used) -> Verdict:
    """Next to nothing is free while it works."""
    free = row.total_bytes - row.used_bytes
    if row.is_told or row.driver_model == "wddm" or (row.busy_share or 0) < THRESHOLDS["least_busy"].value:
        return None
    if free / row.total_bytes >= THRESHOLDS["least_free_share"].value:
        return Cleared(f"{format_bytes(free)} of {format_bytes(row.total_bytes)} are free at the fullest look")
    return Finding(
        summary=f"GPU {row.device_id or 0} has {format_bytes(free)} of {format_bytes(row.total_bytes)} to spare while it works",
        evidence=(
            Evidence("free", free, "bytes", Where(device_id=row.device_id)),
            Evidence("share of the device", free / row.total_bytes, "share"),
        ),
        severity=Severity.MEDIUM,
        bytes=free,
        confidence=0.7,
    )


RETRIED_SQL = """
SELECT count(*) AS retry_count, max(tried_bytes) AS tried_bytes, min(free_bytes) AS free_bytes, EXISTS (SELECT 1 FROM oom WHERE total_bytes IS NOT NULL) AS is_told
FROM allocation_retry
"""
SUMMARY_SQL = """
SELECT coalesce(sum(retry_count), 0)::BIGINT AS retry_count, NULL::BIGINT AS tried_bytes, NULL::BIGINT AS free_bytes,
    EXISTS (SELECT 1 FROM oom WHERE total_bytes IS NOT NULL) AS is_told
FROM allocator_summary
"""


class Retries(NamedTuple):
    """Allocations that succeeded only after cached memory was given back."""

    retry_count: int
    tried_bytes: int | None
    free_bytes: int | None
    is_told: bool


def judge_retries(row: Retries) -> Verdict:
    """Any retry, where no failure tells more."""
    if row.retry_count == 0 or row.is_told:
        return None
    sizes = (
        f": {format_bytes(row.tried_bytes)} asked for, {format_bytes(row.free_bytes or 0)} free"
        if row.tried_bytes is not None
        else ""
    )
    times = "once" if row.retry_count == 1 else f"{row.retry_count} times"
    return Finding(
        summary=f"the allocator had to give cached memory back and ask again {times}{sizes}",
        evidence=(Evidence("retries", row.retry_count, "retries"),),
        severity=Severity.HIGH if row.retry_count >= THRESHOLDS["grave_retries"].value else Severity.MEDIUM,
        bytes=row.tried_bytes,
        confidence=0.8,
    )


REFUSED_FIXES = (
    Fix(
        "system",
        "under Windows: a larger page file (System properties, Advanced, Performance, Virtual memory), and what else holds committed memory closed",
        "each allocation on the device is also counted against the memory that Windows may commit: page file and RAM together",
        source="https://learn.microsoft.com/en-us/troubleshoot/windows-client/performance/introduction-to-the-page-file",
    ),
    Fix(
        "pytorch",
        "no torch.cuda.set_per_process_memory_fraction below 1; print torch.cuda.mem_get_info() right before the allocation",
        "tells a limit of the process from a device that others have filled meanwhile",
        source="https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.mem_get_info.html (checked on 2.13)",
    ),
)
FIXES = (
    Fix(
        "vllm",
        "--gpu-memory-utilization lower by 0.02 to 0.05",
        "a reserve for shapes that come later",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "sglang",
        "--mem-fraction-static lower by 0.02 to 0.05",
        "a reserve for shapes that come later",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked on main of 2026)",
    ),
    Fix(
        "lmdeploy",
        "--cache-max-entry-count 0.2 to 0.5 (TurbomindEngineConfig(cache_max_entry_count=...))",
        "the share of free memory that the KV cache takes, 0.8 unless set",
        source="https://lmdeploy.readthedocs.io/en/latest/inference/turbomind_config.html",
    ),
    Fix(
        "tgi",
        "--cuda-memory-fraction 0.9; --max-batch-prefill-tokens and --max-batch-total-tokens lower",
        "the pool and the largest batch of prompts leave a reserve",
        source="https://huggingface.co/docs/text-generation-inference/reference/launcher",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {free_gpu_memory_fraction: 0.85}; max_batch_size as the load needs it",
        "a reserve for shapes that come later",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html (checked on llm_args.py of main)",
    ),
    Fix(
        "pytorch",
        "torch.inference_mode() around inference; a smaller batch or shorter sequences; weights in bfloat16 or fewer bits; del of what is no"
        " longer used before the next allocation",
        "what fills the device is the run's own",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    Fix(
        "pytorch",
        "torch.cuda.memory._record_memory_history(); torch.cuda.memory._dump_snapshot('snapshot.pickle') after the failure",
        "the snapshot says which stacks hold the memory: diagnose it together with the text",
        source="https://docs.pytorch.org/docs/stable/torch_cuda_memory.html (checked on 2.13)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Failure,
    judge=judge,
    fixes=FIXES,
    verify="2 to 5 % of the device stay free under load, and torch.cuda.memory_stats()['num_alloc_retries'] stays 0.",
    doc=__doc__,
    also=(
        Sign(("gpu_sample",), ("nvidia-smi", "nvml"), USED_SQL, Used, judge_used),
        Sign(("memory_refusal",), ("oom-text",), HIDDEN_SQL, Hidden, judge_hidden),
        Sign(("starved_start",), ("oom-text",), SHARE_SQL, Share, judge_share),
        Sign(("allocation_retry",), ("oom-text",), RETRIED_SQL, Retries, judge_retries),
        Sign(("allocator_summary",), ("memory-snapshot",), SUMMARY_SQL, Retries, judge_retries),
    ),
)
