"""Other ranks hold a context on GPU 0: each costs a few hundred MiB of the device that has the most to do.

What happens: a process that touches CUDA before it has chosen its device (a tensor without a device, torch.load onto the device a
checkpoint names, an empty_cache at import) opens a context on device 0 first. With eight ranks, seven contexts of 200 MiB to 1.2 GiB lie
on GPU 0, and rank 0 fails where all others have room.

How it is detected: `nvidia-smi` lists a pid on device 0 with 0.1 to 1.2 GiB and on another device with its main memory; or with up to
2 GiB on the device where another pid has its main memory, whatever the device's number: ranks count from the first visible one. Or an
out-of-memory text on GPU 0 lists two processes or more, all of that size, that together held what was missing.

When it is not this: one process with much memory: `foreign-gpu-process`. Helpers of one engine on its own device (a tokenizer server, a
display) do not show on a second device.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="extra-context-on-gpu0",
    title="Other ranks hold a context on GPU 0",
    stage=Stage.MEMORY,
    reads=("gpu_process",),
    needs=("nvidia-smi", "nvml"),
)

THRESHOLDS = {
    "least_count": Threshold(1, "processes", source="vllm-omni PR#3768: about 500 MiB for each rank but the first"),
}

SQL = """
SELECT first_device_id, count(*) AS process_count, coalesce(sum(context_bytes), 0)::BIGINT AS context_bytes, min(pid) AS pid,
    string_agg(DISTINCT pid::TEXT, ', ' ORDER BY pid::TEXT) AS pids,
    EXISTS (SELECT 1 FROM oom WHERE coalesce(device_id, 0) = first_device_id) AS is_blocking
FROM context_on_first GROUP BY first_device_id
ORDER BY context_bytes DESC, first_device_id LIMIT 1
"""


class Contexts(NamedTuple):
    """Contexts on the first device of processes that work elsewhere."""

    first_device_id: int
    process_count: int
    context_bytes: int
    pid: int | None
    pids: str | None
    is_blocking: bool


def judge(row: Contexts) -> Verdict:
    """Any such process."""
    if row.process_count < THRESHOLDS["least_count"].value:
        return None
    who = (
        "a process that works on another GPU holds"
        if row.process_count == 1
        else f"{row.process_count} processes that work on other GPUs hold"
    )
    return Finding(
        summary=f"{who} {format_bytes(row.context_bytes)} of contexts on GPU {row.first_device_id} (pid {row.pids})",
        evidence=(
            Evidence("contexts there", row.context_bytes, "bytes", Where(device_id=row.first_device_id, pid=row.pid)),
            Evidence("processes", row.process_count, "processes"),
        ),
        severity=Severity.HIGH if row.is_blocking else Severity.MEDIUM,
        bytes=row.context_bytes,
        confidence=0.9,
    )


FAILED_SQL = """
SELECT named_foreign_count, named_foreign_bytes, tried_bytes, device_id FROM oom_cause
WHERE cause = 'contexts' ORDER BY named_foreign_bytes DESC LIMIT 1
"""


class Failed(NamedTuple):
    """A failure on a device where several processes hold a bare context."""

    named_foreign_count: int
    named_foreign_bytes: int
    tried_bytes: int
    device_id: int | None


def judge_failed(row: Failed) -> Verdict:
    """They hold what was missing."""
    return Finding(
        summary=f"{row.named_foreign_count} other processes hold a bare context each on GPU {row.device_id or 0}, {format_bytes(row.named_foreign_bytes)}"
        f" in all, where {format_bytes(row.tried_bytes)} were missing",
        evidence=(
            Evidence("contexts of other processes", row.named_foreign_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("processes", row.named_foreign_count, "processes"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.named_foreign_bytes,
        confidence=0.7,
    )


FIXES = (
    Fix(
        "pytorch",
        'torch.cuda.set_device(local_rank) before any CUDA call; torch.load(..., map_location="cpu")',
        "no context is opened on device 0",
        source="https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_device.html (checked on 2.13)",
    ),
    Fix(
        "system",
        "CUDA_VISIBLE_DEVICES=<one device> for each rank",
        "a rank cannot reach another device; not where NCCL needs peers by CUDA IPC in one process",
        source="https://github.com/vllm-project/vllm-omni/pull/3768",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Contexts,
    judge=judge,
    fixes=FIXES,
    verify="nvidia-smi lists one pid for each GPU.",
    doc=__doc__,
    also=(Sign(("oom_process",), ("oom-text",), FAILED_SQL, Failed, judge_failed),),
)
