"""Ranks that share a layer are joined by a slow link: PCIe through the CPU, host memory, or peer access switched off.

What happens: tensor parallelism meets twice a layer. Over NVLink a meeting takes microseconds; over PCIe through the CPU
or between sockets it takes ten times as long, and where peer access is off every byte goes up into host memory and down
again. Devices then idle half of the time, each below its power limit.

How it is detected: several devices share a layer (a setting, a communicator, or recorded ranks say so), and they are
joined by SYS, NODE or PHB in the topology, or by shared memory in the log of the communication library, or peer access
is refused or switched off, or a measured bus bandwidth is under half of what the link can carry. An engine that leaves
its own all-reduce kernels off, since its devices have PCIe only or no peer access, says the same with less confidence.
Where a recording shows communication that is not hidden, that is what a better link can win.

When it is not this: one device, or devices that do not share a layer, need no link. Where a recording shows communication
hidden or short, the slow link costs nothing. Where one device holds the model and nothing of the link is broken, fewer devices a
replica are the better cure: `tp-too-wide` comes first. Over several hosts see `nccl-socket-fallback`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict
from doctor.units import format_stated

ABOUT = About(
    id="interconnect-slow",
    title="Ranks of one layer are joined by a slow link",
    stage=Stage.HARDWARE,
    reads=("wiring",),
    needs=("topology", "nccl-log"),
)

THRESHOLDS = {
    "min_exposed": Threshold(0.05, "share of the window", source="rule of thumb: below it a faster link wins nothing"),
    "high_exposed": Threshold(
        0.2, "share of the window", source="vllm-project/vllm#4238: both devices at 50 % over PCIe"
    ),
    "min_rate_share": Threshold(
        0.5, "of what the link can carry", source="nccl#949: 56 % before access control was set right"
    ),
    "max_weight_share": Threshold(
        0.7, "of one device's memory", source="vllm-project/vllm#4238: 7B on two devices, which one holds"
    ),
    "slow_exchange": Threshold(
        0.5, "of the exposed time is left", source="public cases: half of it goes with a better link"
    ),
}

SQL = """
SELECT wiring.*, plan.width_count, plan.rank_count, plan.node_count, plan.tensor_parallel_count, plan.collective_count,
    (SELECT avg(exposed_communication_ns / (until_ns - from_ns)) FROM device_busy, steady_window) AS exposed_share,
    (SELECT median(busy_share) FROM gpu_sample) AS busy_share,
    (SELECT max(power_most_watts / power_limit_watts) FROM gpu_state) AS power_share,
    coalesce((SELECT weight_share FROM model_room) <= $max_weight_share, false) OR EXISTS (SELECT 1 FROM width_scaling WHERE efficiency_share < 0.6) AS is_too_wide
FROM wiring, parallel_plan AS plan
"""


class Wires(NamedTuple):
    """How the devices of a layer are joined."""

    pair_count: int
    nvlink_pair_count: int
    slow_pair_count: int
    nvlink_count: int | None
    worst_kind: str | None
    refused_pair_count: int
    peer_access: str | None
    connection_count: int
    shm_count: int
    p2p_count: int
    net_count: int
    is_p2p_off: bool
    is_p2p_limited: bool
    bus_bytes_per_s: float | None
    size_bytes: int | None
    compute_major: int | None
    nvlink_bytes_per_s: float | None
    pcie_generation: int | None
    is_confirmed: bool
    is_pcie_told: bool
    is_no_peer_told: bool
    width_count: float | None
    rank_count: int | None
    node_count: int | None
    tensor_parallel_count: float | None
    collective_count: int
    exposed_share: float | None
    busy_share: float | None
    power_share: float | None
    is_too_wide: bool


def judge(row: Wires) -> Verdict:
    """A slow way, and somebody who needs a fast one."""
    if (row.width_count or 0) < 2 and row.bus_bytes_per_s is None and not (row.is_pcie_told or row.is_no_peer_told):
        return None
    signs = _signs(row)
    is_told_only = not signs
    signs = signs or _told(row)
    if not signs:
        return _well_joined(row)
    if row.collective_count and row.exposed_share is not None and row.exposed_share < THRESHOLDS["min_exposed"].value:
        return Cleared(f"{'; '.join(signs)}, but exposed communication is {row.exposed_share:.1%} of the window")
    exposed = row.exposed_share if row.collective_count else None
    told = f"; {exposed:.0%} of the window is exposed communication" if exposed is not None else ""
    evidence = [Evidence("devices that share a layer", float(row.width_count), "devices")] if row.width_count else []
    if row.worst_kind:
        evidence.append(Evidence("worst link", row.worst_kind, "kind"))
    if exposed is not None:
        evidence.append(Evidence("exposed communication", exposed, "share of window"))
    if row.bus_bytes_per_s is not None:
        evidence.append(Evidence("bus bandwidth", row.bus_bytes_per_s, "bytes/s"))
    is_by_choice = row.is_too_wide and not any(
        (row.is_p2p_off, row.refused_pair_count, row.shm_count, row.bus_bytes_per_s)
    )
    if is_by_choice:
        told += "; the model needs no second device: fewer for a replica cost nothing on this link"
    saved = (exposed or 0.0) * THRESHOLDS["slow_exchange"].value
    return Finding(
        summary="; ".join(signs) + told,
        evidence=tuple(evidence),
        severity=Severity.MEDIUM if is_by_choice or (is_told_only and exposed is None) else _severity(exposed),
        speedup_bound=1 / (1 - (exposed or 0.0)) if exposed and exposed < 0.95 else None,
        speedup_expected=1 / (1 - saved) if saved else None,
        confidence=0.85 if exposed is not None else 0.55 if is_told_only else 0.7,
    )


def _told(row: Wires) -> list[str]:
    """What an engine says of its devices when it leaves its own all-reduce kernels off; a matrix of NVLink knows better."""
    if row.nvlink_pair_count and row.nvlink_pair_count == row.pair_count:
        return []
    if row.is_no_peer_told:
        return ["the engine finds no peer access between its devices: what they exchange goes through host memory"]
    if row.is_pcie_told:
        return ["the engine finds more than two devices that PCIe alone joins, and leaves its fast all-reduce off"]
    return []


def _severity(exposed: float | None) -> Severity:
    """The rule's own: high, unless a recording shows that little is lost."""
    if exposed is None or exposed >= 0.15:
        return Severity.HIGH
    return Severity.MEDIUM


def _signs(row: Wires) -> list[str]:
    found = []
    if row.is_p2p_off:
        found.append("peer access is switched off (NCCL_P2P_DISABLE=1)")
    if row.refused_pair_count:
        found.append(f"peer access is refused ({(row.peer_access or '').replace('_', ' ')})")
    if row.shm_count and row.shm_count >= row.p2p_count:
        found.append("ranks of one host exchange data through host memory (SHM)")
    if row.slow_pair_count and row.nvlink_pair_count < row.pair_count:
        found.append(f"{_width(row)} devices share a layer over {row.worst_kind} (no NVLink between them)")
    reachable = _reachable(row)
    if (
        row.bus_bytes_per_s is not None
        and reachable
        and row.bus_bytes_per_s < THRESHOLDS["min_rate_share"].value * reachable
    ):
        found.append(
            f"a collective reaches {row.bus_bytes_per_s / 1e9:.0f} GB/s, the link could carry"
            f" {format_stated(f'{reachable / 1e9:.0f}', is_confirmed=row.is_confirmed)}"
        )
    return found


def _width(row: Wires) -> str:
    return f"{row.width_count:.0f}" if row.width_count else "several"


def _reachable(row: Wires) -> float | None:
    """Bus bandwidth that the best way between the devices allows, one direction."""
    if row.nvlink_pair_count and row.nvlink_count:
        return row.nvlink_count * (50e9 if (row.compute_major or 9) >= 10 else 25e9)
    if row.pair_count or row.p2p_count:
        return {3: 12e9, 4: 24e9, 5: 48e9}.get(row.pcie_generation or 4, 24e9)
    return None


def _well_joined(row: Wires) -> Verdict:
    if row.nvlink_pair_count and row.nvlink_pair_count == row.pair_count:
        pairs = row.pair_count // 2  # the matrix tells each pair in both directions
        told = "the two devices are" if pairs <= 1 else f"all {pairs} pairs of devices are"
        return Cleared(f"{told} joined by NVLink ({row.nvlink_count} links)")
    if row.p2p_count and not row.shm_count:
        return Cleared("ranks of one host reach each other's memory directly (P2P)")
    return None


FIXES = (
    Fix(
        "system",
        "unset NCCL_P2P_DISABLE; switch PCIe access control (ACS) off on the bridges, or boot with iommu=pt; in a VM give the devices one root",
        "peer access works again; nvidia-smi topo -p2p r shows OK",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    Fix(
        "vllm",
        "--tensor-parallel-size within an NVLink pair, --pipeline-parallel-size or --data-parallel-size across; one device where the model fits",
        "what meets twice a layer stays on the fast link",
        source="https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",
    ),
    Fix(
        "sglang",
        "--tp-size within an NVLink pair, --pp-size or --dp-size across",
        "what meets twice a layer stays on the fast link",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "tensor_parallel_size within an NVLink pair, pipeline_parallel_size across",
        "what meets twice a layer stays on the fast link",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Wires,
    judge=judge,
    fixes=FIXES,
    verify="all_reduce_perf -b 64M -e 256M -g <devices> reaches the link's bandwidth; NCCL_DEBUG=INFO says P2P and not SHM.",
    doc=__doc__,
)
