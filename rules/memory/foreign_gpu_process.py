"""Another process fills the GPU: the run is out of memory while it holds little of it itself.

What happens: memory of a device is shared by whoever runs on it. A job that ends up on a device in use (a default index 0,
CUDA_VISIBLE_DEVICES overwritten by a later line, an old run that still serves) finds almost nothing free and fails at the
first large tensor, whatever its own settings are. The message always advises expandable segments, which cannot help here.

How it is detected: out-of-memory texts of today name the processes on the device; what they hold is foreign, and so is
whatever is neither free nor the failing process' own, named or not. Texts of before 2023 name nobody: own memory is then what
PyTorch had reserved plus 1.5 GiB for context and libraries, and the finding is called probable. It fires when others hold at
least 1 GiB and 5 % of the device, and no less than the allocation that failed; where none of them is named, 2 GiB and 10 %, since
displays and the driver hold some everywhere. An engine that refused to start or to size its
cache while `nvidia-smi` lists others, and samples that know which processes are the run's own, are the other signs.

When it is not this: in a container the failing process itself is listed as `Process N`: `own-pid-in-container`. Contexts of a
few hundred MiB of other ranks: `extra-context-on-gpu0`. Memory whose owner is dead or stuck: `orphan-or-zombie-memory`; where the log only says
that the run was started again, or the named process writes in it too, that is said and the confidence is 0.5. Free
memory inside the process' own allocator: `fragmentation`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="foreign-gpu-process",
    title="Another process fills the GPU",
    stage=Stage.MEMORY,
    reads=("oom_event",),
    needs=("oom-text", "nvidia-smi", "nvml"),
)

THRESHOLDS = {
    "least_gib": Threshold(
        1, "GiB", source="below this it may be contexts and libraries; LlamaFactory#182, ai-toolkit#277"
    ),
    "least_share": Threshold(0.05, "share of the device", source="LlamaFactory#182, ai-toolkit#277: 83 % and 99 %"),
    "least_unnamed_gib": Threshold(
        2, "GiB that no process is named for", source="desktops and WSL hold 0.5 to 1.6 GiB for displays"
    ),
    "least_unnamed_share": Threshold(0.1, "share of the device that no process is named for", source="as above"),
    "sure_share": Threshold(
        0.25,
        "share of the device, where neither own nor other processes are told",
        source="transformers-bloom-inference#84: 12 % were buffers of a library in the same process; LlamaFactory#182: 83 % were another job",
    ),
    "grave_share": Threshold(0.5, "share of the device", source="ai-toolkit#277: 98.7 % foreign, 1.2 % own"),
    "reserve_share": Threshold(
        0.02, "share of the device", source="vLLM measures free memory before its own context is complete"
    ),
}

SQL = """
WITH name AS (SELECT pid, any_value(name) AS name FROM (
    SELECT pid, name FROM gpu_process UNION ALL SELECT pid, name FROM host_process) WHERE name IS NOT NULL GROUP BY pid)
SELECT cause, count(*) FILTER (cause = 'foreign') OVER () AS failure_count, device_id, tried_bytes, total_bytes, free_bytes, own_bytes,
    is_own_known, foreign_bytes, named_foreign_count, largest_foreign_id AS pid, name.name, largest_foreign_bytes, is_restarted, is_of_this_run
FROM oom_cause LEFT JOIN name ON name.pid = largest_foreign_id
WHERE is_size_told AND total_bytes > 0 AND foreign_bytes IS NOT NULL AND tried_bytes IS NOT NULL AND own_bytes IS NOT NULL
ORDER BY (cause = 'foreign') DESC, foreign_bytes DESC, source_id, oom_event_id
LIMIT 1
"""


class Failure(NamedTuple):
    """The failure that others explain best."""

    cause: str
    failure_count: int
    device_id: int | None
    tried_bytes: int
    total_bytes: int
    free_bytes: int | None
    own_bytes: int
    is_own_known: bool
    foreign_bytes: int
    named_foreign_count: int
    pid: int | None
    name: str | None
    largest_foreign_bytes: int | None
    is_restarted: bool
    is_of_this_run: bool


def holder(pid: int | None, name: str | None) -> str:
    """A process by pid and the base name of its executable."""
    if pid is None:
        return "somebody else"
    return f"process {pid} ({name})" if name else f"process {pid}"


def shared(share: str) -> tuple[Fix, ...]:
    """What engines need where the device must be shared, with the share that is left for them."""
    return tuple(Fix(fix.target, fix.setting.format(share=share), fix.why, fix.source) for fix in SHARED)


def fixes_for(left_bytes: int, total_bytes: int) -> tuple[Fix, ...]:
    """The fixes, with the share of the device that is left for this run."""
    share = max(left_bytes / total_bytes - THRESHOLDS["reserve_share"].value, 0.0)
    return (*SYSTEM, *shared(f"{share:.2f}"))


def confidence_of(row: Failure) -> float:
    """Less where nobody is named, where the failing process may be the named one, or where it may be an earlier start of this run."""
    if row.is_restarted or row.is_of_this_run:
        return 0.5
    if row.named_foreign_count:
        return 0.95 if row.is_own_known or row.own_bytes > 1.6 * 2**30 else 0.6
    if row.is_own_known:
        return 0.85
    return 0.7 if row.foreign_bytes >= THRESHOLDS["sure_share"].value * row.total_bytes else 0.5


def judge(row: Failure) -> Verdict:
    """The first failure that others explain; otherwise what they hold."""
    if row.cause != "foreign":
        if row.cause in {"contexts", "abandoned", "capped"}:
            return None
        own = "" if row.is_own_known else " (own memory is estimated)"
        return Cleared(
            f"others hold {format_bytes(row.foreign_bytes)} of {format_bytes(row.total_bytes)}{own},"
            f" the failing process {format_bytes(row.own_bytes)}; {format_bytes(row.tried_bytes)} were asked for"
        )
    rest = row.named_foreign_count - 1
    who = holder(row.pid, row.name) + (f" and {rest} other{'s' if rest > 1 else ''}" if rest > 0 else "")
    hold = "hold" if rest > 0 else "holds"
    probably = "" if row.is_own_known or row.pid is not None else "probably "
    if probably and confidence_of(row) <= 0.5:
        who = "somebody else, or a library of the process that allocates outside PyTorch,"
    if row.is_of_this_run:
        who += ", which writes in this log too,"
    elif row.is_restarted:
        who += ", perhaps left over from before this run was started again,"
    return Finding(
        summary=f"{who} {probably}{hold} {format_bytes(row.foreign_bytes)} of {format_bytes(row.total_bytes)} on GPU {row.device_id or 0}:"
        f" the run itself holds {format_bytes(row.own_bytes)} and found no {format_bytes(row.tried_bytes)}",
        evidence=(
            Evidence("memory of others", row.foreign_bytes, "bytes", Where(device_id=row.device_id, pid=row.pid)),
            Evidence("share of the device held by others", row.foreign_bytes / row.total_bytes, "share"),
            Evidence("memory of the failing process", row.own_bytes, "bytes"),
            Evidence("allocation that failed", row.tried_bytes, "bytes"),
            Evidence("failures that this explains", row.failure_count, "failures"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.foreign_bytes,
        confidence=confidence_of(row),
        fixes=(
            *((WHOSE,) if row.is_restarted or row.is_of_this_run else ()),
            *fixes_for(row.total_bytes - row.foreign_bytes, row.total_bytes),
        ),
        label=f"pid {row.pid}" if row.pid is not None else "",
    )


REFUSED_SQL = """
SELECT refusal, card_bytes, short_bytes, foreign_bytes, foreign_id AS pid, foreign_name AS name, is_own_possible FROM refusal
WHERE is_shared AND refusal IN ('model_length', 'no_kv_room', 'startup_free')
    AND NOT EXISTS (SELECT 1 FROM oom_event WHERE total_bytes IS NOT NULL)
    AND lost_bytes < 0.5 * foreign_bytes
    AND NOT EXISTS (SELECT 1 FROM device_holding WHERE stuck_bytes >= 0.5 * refusal.foreign_bytes)
ORDER BY foreign_bytes DESC, line_id LIMIT 1
"""


class Refused(NamedTuple):
    """An engine that refused, and who else holds memory."""

    refusal: str
    card_bytes: int | None
    short_bytes: int | None
    foreign_bytes: int
    pid: int
    name: str | None
    is_own_possible: bool


def judge_refused(row: Refused) -> Verdict:
    """Others hold what the engine lacks."""
    if row.short_bytes is not None and row.short_bytes > row.foreign_bytes:
        return None
    lack = f", {format_bytes(row.short_bytes)} were missing" if row.short_bytes is not None else ""
    if row.card_bytes is None:
        unless = ", unless that is the engine itself" if row.is_own_possible else ""
        return Finding(
            summary=f"the engine refused for want of memory{lack}, while {holder(row.pid, row.name)} holds"
            f" {format_bytes(row.foreign_bytes)} on a GPU of unknown size{unless}",
            evidence=(Evidence("memory of others", row.foreign_bytes, "bytes", Where(pid=row.pid)),),
            severity=Severity.MEDIUM,
            bytes=row.foreign_bytes,
            confidence=0.5 if row.is_own_possible else 0.7,
            label=f"pid {row.pid}",
        )
    return Finding(
        summary=f"the engine refused for want of memory{lack}, while {holder(row.pid, row.name)} and others hold"
        f" {format_bytes(row.foreign_bytes)} of {format_bytes(row.card_bytes)}",
        evidence=(
            Evidence("memory of others", row.foreign_bytes, "bytes", Where(pid=row.pid)),
            Evidence("share of the device held by others", row.foreign_bytes / row.card_bytes, "share"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.foreign_bytes,
        confidence=0.8,
        fixes=fixes_for(row.card_bytes - row.foreign_bytes, row.card_bytes),
        label=f"pid {row.pid}",
    )


SAMPLED_SQL = """
SELECT device_id, total_bytes, used_bytes, foreign_bytes, largest_id AS pid, largest_name AS name FROM device_holding
WHERE own_count > 0 AND foreign_bytes > 0 AND total_bytes > 0 AND NOT EXISTS (SELECT 1 FROM oom_event WHERE total_bytes IS NOT NULL)
ORDER BY foreign_bytes DESC LIMIT 1
"""


class Sampled(NamedTuple):
    """A device of the recorded command, and what others hold of it."""

    device_id: int
    total_bytes: int
    used_bytes: int | None
    foreign_bytes: int
    pid: int | None
    name: str | None


def judge_sampled(row: Sampled) -> Verdict:
    """Others hold a visible part of a device of the run."""
    share = row.foreign_bytes / row.total_bytes
    if row.foreign_bytes < THRESHOLDS["least_gib"].value * 2**30 or share < THRESHOLDS["least_share"].value:
        return None
    return Finding(
        summary=f"other processes hold {format_bytes(row.foreign_bytes)} of {format_bytes(row.total_bytes)} on GPU {row.device_id}",
        evidence=(Evidence("memory of others", row.foreign_bytes, "bytes", Where(device_id=row.device_id)),),
        severity=Severity.HIGH if share >= THRESHOLDS["grave_share"].value else Severity.MEDIUM,
        bytes=row.foreign_bytes,
        confidence=0.9,
        fixes=fixes_for(row.total_bytes - row.foreign_bytes, row.total_bytes),
    )


WHOSE = Fix(
    "system",
    "ps -o pid,ppid,stat,lstart,cmd -p <pid>: is it a worker of the run that went down? Then end it and those beside it",
    "a worker whose parent died lives on with parent 1 and keeps its memory",
    source="https://github.com/xorbitsai/inference/issues/1212",
)
SYSTEM = (
    Fix(
        "system",
        "CUDA_VISIBLE_DEVICES=<index or UUID of a free GPU>, on the launching command itself",
        "the run then sees that device only, as cuda:0; a value set later in the program or overwritten by a script does not count",
        source="https://github.com/hiyouga/LLaMA-Factory/issues/182, https://github.com/ostris/ai-toolkit/issues/277",
    ),
    Fix(
        "system",
        "end the other job, or wait for it: nvidia-smi names it; its owner decides",
        "its memory comes back at once",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    ),
)
SHARED = (
    Fix(
        "vllm",
        "--gpu-memory-utilization {share} at most, where the device must be shared; or --kv-cache-memory-bytes",
        "it is a share of the whole device, not of what is free",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026, where the default is 0.92; 0.9 before)",
    ),
    Fix(
        "sglang",
        "--mem-fraction-static {share} at most, where the device must be shared; --base-gpu-id for another device",
        "weights and KV pool then fit into what is left",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html (checked on main of 2026)",
    ),
    Fix(
        "tensorrt-llm",
        "kv_cache_config: {{free_gpu_memory_fraction: 0.8}}",
        "it is a share of what is free after the engine is loaded",
        source="https://nvidia.github.io/TensorRT-LLM/features/kvcache.html (checked on llm_args.py of main)",
    ),
)
FIXES = (*SYSTEM, *shared("(free / total - 0.02)"))

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Failure,
    judge=judge,
    fixes=FIXES,
    verify="nvidia-smi lists the run's own process only; free memory covers what it needs.",
    doc=__doc__,
    also=(
        Sign(("memory_refusal", "gpu_process"), ("oom-text", "nvidia-smi"), REFUSED_SQL, Refused, judge_refused),
        Sign(("gpu_process", "gpu_sample"), ("nvml",), SAMPLED_SQL, Sampled, judge_sampled),
    ),
)
