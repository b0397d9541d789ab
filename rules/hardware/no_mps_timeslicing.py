"""Several processes share a device by taking turns: none of them fills it, and they never run at once.

What happens: without MPS the device runs the kernels of one process at a time. Replicas that are bound by their host
leave it idle most of the time, and each still waits for its slice; two or three of them together give hardly more than
one.

How it is detected: at least two processes compute on one device, no MPS server is among them, and each keeps the
multiprocessors busy for less than 40 % of the time. Where a recording holds several of the processes, their kernels do
not overlap.

When it is not this: a device that is full with one process has nothing to share. A process of somebody else is
`foreign-gpu-process`. Under MPS all clients may be shown as one server: then this rule is silent.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="no-mps-timeslicing",
    title="Processes share the device by turns, without MPS",
    stage=Stage.HARDWARE,
    reads=("gpu_tenant",),
    needs=("nvml", "nvidia-smi", "nsys-report", "nsys-sqlite"),
)

THRESHOLDS = {
    "min_tenants": Threshold(2, "processes", source="one alone has nobody to take turns with"),
    "max_sm_share": Threshold(0.4, "share of time", source="sgl-project/sglang-omni#1115: 17 % at concurrency 32"),
    "full_share": Threshold(0.85, "share of time", source="rule of thumb: a full device gains nothing"),
    "overlap_share": Threshold(0.02, "of busy time", source="time slices do not overlap; what is left is clock error"),
    "min_memory_bytes": Threshold(2**30, "bytes a process", source="less is a bare context, no replica"),
}

SQL = """
SELECT tenant.device_id, tenant_count, is_mps, sm_share, sm_sum_share, tenant.busy_share, memory_bytes, loaded_count,
    (SELECT sum(shared_ns) / sum(busy_ns) FROM process_overlap) AS overlap_share,
    (SELECT max(process_count) FROM process_overlap) AS recorded_count,
    (SELECT sum(busy_ns) FROM process_overlap) / nullif((SELECT any_value(until_ns - from_ns) FROM steady_window), 0) AS recorded_busy_share
FROM gpu_tenant AS tenant
QUALIFY row_number() OVER (PARTITION BY tenant.device_id ORDER BY tenant_count DESC, source_id) = 1
ORDER BY tenant.device_id
"""


class Tenants(NamedTuple):
    """Processes on one device."""

    device_id: int | None
    tenant_count: int
    is_mps: bool
    sm_share: float | None
    sm_sum_share: float | None
    busy_share: float | None
    memory_bytes: int | None
    loaded_count: int
    overlap_share: float | None
    recorded_count: int | None
    recorded_busy_share: float | None


def judge(row: Tenants) -> Verdict:
    """Several, small, one at a time."""
    least_bytes = row.tenant_count * THRESHOLDS["min_memory_bytes"].value
    if row.tenant_count < THRESHOLDS["min_tenants"].value or (row.memory_bytes or least_bytes) < least_bytes:
        return None
    if row.is_mps:
        return Cleared(f"{row.tenant_count} processes share GPU {row.device_id} through MPS")
    if row.overlap_share is not None and row.overlap_share > THRESHOLDS["overlap_share"].value:
        return Cleared(
            f"kernels of {row.recorded_count} processes overlap for {row.overlap_share:.0%} of the busy time"
        )
    share = row.sm_share if row.sm_share is not None else row.busy_share
    full = row.sm_sum_share if row.loaded_count == row.tenant_count else row.busy_share
    if full is not None and full >= THRESHOLDS["full_share"].value and row.overlap_share is None:
        return Cleared(
            f"{row.tenant_count} processes share GPU {row.device_id}, which is busy for {full:.0%} of the time: full"
        )
    is_idle = share == 0 and row.overlap_share is None  # who only holds memory takes no turns
    if share is None or share >= THRESHOLDS["max_sm_share"].value or is_idle:
        return None
    return _finding(row, share)


def _finding(row: Tenants, share: float) -> Finding:
    seen = (
        f"; their kernels run at once for {row.overlap_share:.1%} of the busy time"
        if row.overlap_share is not None
        else ""
    )
    whose = "each" if row.sm_share is not None else "all together"
    bound = min(float(row.tenant_count), 1 / max(share, 0.05))
    evidence = [
        Evidence(
            "processes that compute on the device", float(row.tenant_count), "processes", Where(device_id=row.device_id)
        ),
        Evidence("multiprocessors busy", share, "share of time"),
    ]
    if row.overlap_share is not None:
        evidence.append(Evidence("kernels of two processes at once", row.overlap_share, "share of busy time"))
    return Finding(
        summary=f"{row.tenant_count} processes take turns on GPU {row.device_id}, busy for {share:.0%} of the time ({whose}), and no MPS server is listed{seen}",
        evidence=tuple(evidence),
        severity=Severity.HIGH if seen or share < 0.25 else Severity.MEDIUM,
        speedup_bound=bound,
        confidence=0.85 if seen else 0.65 if row.sm_share is not None else 0.55,
        label=f"GPU {row.device_id}",
    )


FIXES = (
    Fix(
        "system",
        "nvidia-cuda-mps-control -d on the host before the replicas start; CUDA_MPS_ACTIVE_THREAD_PERCENTAGE per replica",
        "kernels of several processes run at once; public cases gained 1.7 to 2.7 times",
        source="https://docs.nvidia.com/deploy/mps/appendix-tools-and-interface-reference.html (the percentage only narrows what the daemon sets:"
        " set_default_active_thread_percentage), nvidia-cuda-mps-control(1) of driver 580.65",
    ),
    Fix(
        "system",
        "MIG instances (nvidia-smi mig -cgi ...) where replicas must not disturb each other",
        "each has its own share of multiprocessors and memory",
        source="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html",
    ),
    Fix(
        "vllm",
        "one engine with a larger --max-num-seqs in place of several; CUDA graphs on",
        "one batch fills the device better than several processes",
        source="https://docs.vllm.ai/en/latest/configuration/optimization.html",
    ),
    Fix(
        "sglang",
        "one server with a larger --max-running-requests; under MPS give each replica its --mem-fraction-static share",
        "start-up peaks of one replica kill another that took all memory",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Tenants,
    judge=judge,
    fixes=FIXES,
    verify="record again: kernels of the processes overlap, and tokens a second of all together rise.",
    doc=__doc__,
)
