"""The PCIe link is slower than it could be, under load.

What happens: a link that trained at fewer lanes or an older generation (a riser, a dirty contact, a slot with half its
lanes, a firmware setting) works without an error and moves a half, a quarter or an eighth of the bytes. Weights that are
loaded or streamed, offloaded caches and collectives over PCIe pay for it; nothing else does.

How it is detected: of the samples in which the device was busy, the best link speed (lanes times rate of the
generation) is under 75 % of what device and slot allow. Where a device was only seen at rest (nvidia-smi -q, lspci -vv),
its lanes alone are judged: fewer than half of the possible.

When it is not this: idle devices take the generation down to save power, so that it never counts in idle samples. A slot that has fewer
lanes by design looks the same; the finding says which of lanes and generation is low. Where nothing crosses PCIe the
loss is small and the finding is low.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_stated

ABOUT = About(
    id="pcie-link-degraded",
    title="The PCIe link runs below its speed",
    stage=Stage.HARDWARE,
    reads=("gpu_link_state",),
    needs=("nvml", "nvidia-smi"),
)

THRESHOLDS = {
    "min_rate_share": Threshold(
        0.75, "of the link's most", source="local-inference-lab/rtx6kpro PR#88: one device at 12 %, the others at 100 %"
    ),
    "min_lane_share": Threshold(0.5, "of the possible lanes", source="boards split sixteen lanes in two on purpose"),
    "busy_copy_share": Threshold(0.05, "share of the window", source="rule of thumb: below it copies decide nothing"),
}

SQL = """
WITH copied AS (
    SELECT coalesce(sum(end_ns - start_ns) FILTER (copy_kind IN ('htod', 'dtoh') AND size_bytes > 65536), 0)
            / nullif(any_value(until_ns - from_ns), 0) AS copy_share, count(*) AS op_count
    FROM device_op, steady_window WHERE start_ns >= from_ns AND start_ns < until_ns
),
wired AS (
    SELECT count(*) FILTER (link_kind = 'nv') AS nvlink_count, count(*) FILTER (peer_device_id IS NOT NULL) AS link_count FROM gpu_link
),
shared AS (
    SELECT count(*) AS connection_count FROM nccl_connection WHERE transport IN ('p2p', 'shm')
)
SELECT device_id, name, pcie_rate_bytes_per_s, pcie_rate_max_bytes_per_s, pcie_generation, pcie_generation_max, pcie_lanes_count,
    pcie_lanes_max_count, is_link_unconfirmed, busy_count, best_rate_bytes_per_s, seen_count, copy_share, op_count,
    (link_count > 0 AND nvlink_count = 0 OR connection_count > 0 AND link_count > nvlink_count) AS is_collective_over_pcie
FROM gpu_link_state, copied, wired, shared
ORDER BY device_id
"""


class Link(NamedTuple):
    """The link of one device, as good as it was seen under load."""

    device_id: int
    name: str | None
    pcie_rate_bytes_per_s: float
    pcie_rate_max_bytes_per_s: float
    pcie_generation: int
    pcie_generation_max: int
    pcie_lanes_count: int
    pcie_lanes_max_count: int | None
    is_link_unconfirmed: bool
    busy_count: int
    best_rate_bytes_per_s: float
    seen_count: int
    copy_share: float | None
    op_count: int
    is_collective_over_pcie: bool


def judge(row: Link) -> Verdict:
    """Slow under load."""
    share = row.pcie_rate_bytes_per_s / row.pcie_rate_max_bytes_per_s
    if share >= THRESHOLDS["min_rate_share"].value:
        return None
    most_lanes = row.pcie_lanes_max_count or row.pcie_lanes_count
    crosses = (row.copy_share or 0.0) >= THRESHOLDS["busy_copy_share"].value or row.is_collective_over_pcie
    if row.op_count and not crosses and row.copy_share is not None and row.copy_share < 0.005 and row.seen_count < 2:
        return Cleared(
            f"GPU {row.device_id}'s link is at {share:.0%}, but hardly a byte crosses it ({row.copy_share:.1%} of the window)"
        )
    others = ""
    if row.seen_count > 1 and row.best_rate_bytes_per_s > 1.3 * row.pcie_rate_bytes_per_s:
        others = "; other devices of this machine are faster"
    what = (
        "lanes and generation"
        if row.pcie_lanes_count < most_lanes and row.pcie_generation < row.pcie_generation_max
        else ("lanes" if row.pcie_lanes_count < most_lanes else "generation")
    )
    severity = Severity.HIGH if crosses or share < 0.3 else Severity.LOW if row.op_count else Severity.MEDIUM
    return Finding(
        summary=f"GPU {row.device_id}: PCIe gen{row.pcie_generation} x{row.pcie_lanes_count} under load, "
        f"{format_stated(f'gen{row.pcie_generation_max} x{most_lanes}', is_confirmed=not row.is_link_unconfirmed)} is possible: {share:.0%} of the speed (low: {what}){others}",
        evidence=(
            Evidence("link speed under load", share, "of its most", Where(device_id=row.device_id)),
            Evidence("link speed", row.pcie_rate_bytes_per_s, "bytes/s"),
            Evidence("busy samples", float(row.busy_count), "samples"),
        ),
        severity=severity,
        confidence=0.9 if row.busy_count > 1 or others else 0.75,
        label=f"GPU {row.device_id}",
    )


LANES_SQL = (
    "SELECT device_id, name, pcie_lanes_count, pcie_lanes_max_count, look_count FROM gpu_lane_state ORDER BY device_id"
)


class Lanes(NamedTuple):
    """The lanes of a device that was only seen at rest."""

    device_id: int
    name: str | None
    pcie_lanes_count: int
    pcie_lanes_max_count: int
    look_count: int


def judge_lanes(row: Lanes) -> Verdict:
    """Few lanes; half of them is what boards with two slots give on purpose."""
    share = row.pcie_lanes_count / row.pcie_lanes_max_count
    if share >= THRESHOLDS["min_lane_share"].value:
        return None
    return Finding(
        summary=f"GPU {row.device_id} runs on {row.pcie_lanes_count} of {row.pcie_lanes_max_count} PCIe lanes; its generation was not seen under load",
        evidence=(
            Evidence("lanes", share, "of the possible", Where(device_id=row.device_id)),
            Evidence("looks at rest", float(row.look_count), "samples"),
        ),
        severity=Severity.MEDIUM,
        confidence=0.65,
        label=f"GPU {row.device_id}",
    )


FIXES = (
    Fix(
        "system",
        "reseat the card, try another slot or riser; in the firmware set the slot's generation to auto and x16, no bifurcation",
        "most links are slow by contact or by setting",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    ),
    Fix(
        "system",
        "lspci -vv -s <address>: compare LnkCap with LnkSta, on the card and on the bridge above it; retrain or reboot",
        "shows which end limits the link; a link that was fixed at a low speed comes back by retraining",
        source="https://man7.org/linux/man-pages/man8/lspci.8.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Link,
    judge=judge,
    fixes=FIXES,
    verify="nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current under load shows the link's most.",
    doc=__doc__,
    also=(Sign(("gpu_lane_state",), ("nvidia-smi", "topology"), LANES_SQL, Lanes, judge_lanes),),
)
