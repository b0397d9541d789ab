"""An engine refuses to start: less memory is free than the share of the device that it may take.

What happens: vLLM asks for a share of the whole device (`--gpu-memory-utilization`, 0.9 or 0.92 unless set) and looks how much is
free before it loads anything. Where others hold memory, or an earlier run has left some, that share is not there. SGLang compares
the ranks: one device with clearly less free memory than the others ends the start.

How it is detected: the engine says so, with both figures: `Free memory on device (F/T GiB) on startup is less than desired GPU
memory utilization (u, R GiB)`, or `The memory capacity is unbalanced`.

When it is not this: who holds the memory is told by `foreign-gpu-process` and `orphan-or-zombie-memory` where `nvidia-smi` is
given too. A cache that is too small for the longest sequence comes later: `max-model-len-too-high`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="startup-free-too-small",
    title="Less memory is free than the engine may take",
    stage=Stage.MEMORY,
    reads=("memory_refusal",),
    needs=("oom-text", "engine-log"),
)

THRESHOLDS = {
    "reserve_share": Threshold(0.02, "share of the device", source="memory that moves between the look and the use"),
    "few_share": Threshold(
        0.88, "share of the device free", source="displays and contexts take up to 2 GiB of a small card"
    ),
    "nobody_share": Threshold(
        0.95, "share of the device free", source="a context takes 1 to 2 %: then nobody else is there"
    ),
}

SQL = """
SELECT refusal, framework, device_id, free_bytes, later_free_bytes, total_bytes, requested_bytes, utilization_share, short_bytes, foreign_id AS pid,
    foreign_name AS name, foreign_bytes
FROM refusal WHERE refusal IN ('startup_free', 'unbalanced')
ORDER BY short_bytes DESC NULLS LAST, source_id, line_id LIMIT 1
"""


class Refusal(NamedTuple):
    """The start that lacked most."""

    refusal: str
    framework: str | None
    device_id: int | None
    free_bytes: int | None
    later_free_bytes: int | None
    total_bytes: int | None
    requested_bytes: int | None
    utilization_share: float | None
    short_bytes: int | None
    pid: int | None
    name: str | None
    foreign_bytes: int


def judge(row: Refusal) -> Verdict:
    """The engine's own figures."""
    if row.refusal == "unbalanced" or row.free_bytes is None or not row.total_bytes or row.requested_bytes is None:
        seen = (
            f": {format_bytes(row.free_bytes)} free on one, {format_bytes(row.later_free_bytes)} here"
            if row.free_bytes and row.later_free_bytes
            else ""
        )
        return Finding(
            summary=f"the ranks see different free memory{seen}: somebody else is on one of the GPUs",
            evidence=(Evidence("missing on one device", row.short_bytes or 0, "bytes"),),
            severity=Severity.CRITICAL,
            bytes=row.short_bytes,
            confidence=0.8,
        )
    free_share = row.free_bytes / row.total_bytes
    most = max(free_share - THRESHOLDS["reserve_share"].value, 0.0)
    is_alone = free_share >= THRESHOLDS["nobody_share"].value
    why = (
        "hardly anybody else is there: the share is set too high"
        if is_alone
        else f"{format_bytes(row.total_bytes - row.free_bytes)} are taken, by others or by contexts"
        if free_share >= THRESHOLDS["few_share"].value
        else f"others hold {format_bytes(row.total_bytes - row.free_bytes)}"
    )
    missing = format_bytes(row.requested_bytes - row.free_bytes)
    return Finding(
        summary=f"{format_bytes(row.free_bytes)} of {format_bytes(row.total_bytes)} were free and {format_bytes(row.requested_bytes)} asked for"
        f" ({row.utilization_share:.2f} of the device), {missing} too many: {why}",
        evidence=(
            Evidence("free at the start", row.free_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("asked for", row.requested_bytes, "bytes"),
            Evidence("missing", row.requested_bytes - row.free_bytes, "bytes"),
            Evidence("share of the device that is free", free_share, "share"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.requested_bytes - row.free_bytes,
        confidence=0.95,
        fixes=(FREE, *(Fix(fix.target, fix.setting.format(share=most), fix.why, fix.source) for fix in SHARES)),
    )


FREE = Fix(
    "system",
    "free the device first: nvidia-smi names who holds it; or CUDA_VISIBLE_DEVICES=<a free one>",
    "what others hold cannot be asked for",
    source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
)
SHARES = (
    Fix(
        "vllm",
        "--gpu-memory-utilization {share:.2f}; or --kv-cache-memory-bytes with the size itself",
        "the share is of the whole device, so it may be no more than what is free",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
)
FIXES = (
    FREE,
    Fix(
        "vllm",
        "--gpu-memory-utilization at most free / total - 0.02; or --kv-cache-memory-bytes",
        "the share is of the whole device",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "sglang",
        "--base-gpu-id N with --gpu-id-step; SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0 only where the difference is meant"
        " (older: SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK=1)",
        "the ranks then sit on devices of equal free memory",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked on main of 2026)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Refusal,
    judge=judge,
    fixes=FIXES,
    verify="the engine starts; nvidia-smi shows its process only.",
    doc=__doc__,
)
