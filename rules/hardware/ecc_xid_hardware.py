"""The device or its link is failing: the driver reports hardware errors.

What happens: memory cells die, a link loses packets, the device falls off the bus. Programs hang, crash or compute
wrongly, and are blamed for it; the same happens with any other program on that device.

How it is detected: errors of the driver in the kernel log (Xid) of the kinds that hardware raises, such as 48 and 94
(memory), 63 and 64 (rows replaced), 74 and 144 to 150 (NVLink), 79 (off the bus); uncorrected memory errors since the
driver was loaded; memory rows that wait to be replaced, cannot be, or become more. Xids of the device's own processors
and of time-outs (62, 109, 119, 120, 154) are said with less confidence: firmware and driver raise them too, and all the
less where an error of a program came before.

When it is not this: Xid 13, 31 and 43 are raised by programs (a wrong address, mostly) and are ruled out when they come
alone. Rows that were replaced once and errors of years ago are history: they are said, at low severity.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="ecc-xid-hardware",
    title="The driver reports failing hardware",
    stage=Stage.HARDWARE,
    reads=("hardware_evidence",),
    needs=("kernel-log", "nvml", "nvidia-smi"),
)

THRESHOLDS = {
    "min_events": Threshold(
        1, "event", source="wtdcode/vllm-backport#62: one card, Xid 48, 63, 94, 154, then replaced"
    ),
}

SQL = """
SELECT pci_bus_id, device_id, name, hardware_event_count, software_event_count, doubtful_event_count, event_count, hardware_xids, doubtful_xids,
    other_xids, is_lost,
    ecc_uncorrected_volatile_count, ecc_uncorrected_count, ecc_uncorrected_new_count, remapped_count, remapped_new_count, is_remap_pending, is_remap_failed
FROM hardware_evidence ORDER BY pci_bus_id
"""


class Faults(NamedTuple):
    """What speaks against one device."""

    pci_bus_id: str
    device_id: int | None
    name: str | None
    hardware_event_count: int
    software_event_count: int
    doubtful_event_count: int
    event_count: int
    hardware_xids: str | None
    doubtful_xids: str | None
    other_xids: str | None
    is_lost: bool
    ecc_uncorrected_volatile_count: int | None
    ecc_uncorrected_count: int | None
    ecc_uncorrected_new_count: int | None
    remapped_count: int | None
    remapped_new_count: int | None
    is_remap_pending: bool
    is_remap_failed: bool


def judge(row: Faults) -> Verdict:
    """Errors that hardware raises, or counters that move."""
    signs = _signs(row)
    if signs:
        return _finding(row, signs, Severity.CRITICAL, 0.95)
    if row.doubtful_event_count:
        told = f"Xid {row.doubtful_xids} in the kernel log"
        if row.software_event_count:
            return _finding(
                row,
                [f"{told}, beside Xid {row.other_xids}: a program or the driver may be behind it"],
                Severity.MEDIUM,
                0.4,
            )
        return _finding(row, [f"{told}: the device, its firmware or the driver is behind it"], Severity.HIGH, 0.6)
    if row.event_count:
        return Cleared(f"Xid {row.other_xids} on {_place(row)} is usually raised by a program, not by the device")
    if row.remapped_count or row.ecc_uncorrected_count:
        past = [f"{row.remapped_count} memory rows were replaced"] if row.remapped_count else []
        past += [f"{row.ecc_uncorrected_count} uncorrected errors in its life"] if row.ecc_uncorrected_count else []
        return _finding(row, [*past, "none since the driver was loaded"], Severity.INFO, 0.8)
    return None


def _signs(row: Faults) -> list[str]:
    found = []
    if row.hardware_event_count >= THRESHOLDS["min_events"].value:
        count, xids = row.hardware_event_count, row.hardware_xids
        errors = "a hardware error" if count == 1 else f"{count} hardware errors"
        found.append(f"{errors} in the {'kernel log' if xids else 'log'}{f' (Xid {xids})' if xids else ''}")
        if row.doubtful_xids:
            found[-1] += f" beside Xid {row.doubtful_xids}"
    if row.is_lost:
        found.append("it fell off the bus")
    if row.ecc_uncorrected_volatile_count:
        count = row.ecc_uncorrected_volatile_count
        found.append(f"{count} uncorrected memory error{'s' if count > 1 else ''} since the driver was loaded")
    if row.ecc_uncorrected_new_count:
        found.append(f"{row.ecc_uncorrected_new_count} new uncorrected memory errors")
    if row.is_remap_failed:
        found.append("a memory row could not be replaced")
    if row.is_remap_pending:
        found.append("a memory row waits for a reset to be replaced")
    if row.remapped_new_count:
        found.append(f"{row.remapped_new_count} more memory rows replaced while it was watched")
    return found


def _finding(row: Faults, signs: list[str], severity: Severity, confidence: float) -> Finding:
    counts = (
        ("hardware errors in the kernel log", row.hardware_event_count),
        ("uncorrected memory errors since the driver was loaded", row.ecc_uncorrected_volatile_count),
        ("memory rows replaced", row.remapped_count),
    )
    where = Where(device_id=row.device_id)
    evidence = tuple(Evidence(name, float(count), "events", where) for name, count in counts if count)
    if row.hardware_xids:
        evidence += (Evidence("Xid", row.hardware_xids, "numbers", where),)
    return Finding(
        summary=f"{_place(row)}: {', '.join(signs)}",
        evidence=evidence,
        severity=severity,
        confidence=confidence,
        label=_place(row),
    )


def _place(row: Faults) -> str:
    """Device and address, as far as they are known."""
    if row.device_id is not None and not row.pci_bus_id.startswith("device "):
        return f"GPU {row.device_id} ({row.pci_bus_id})"
    if row.device_id is not None:
        return f"GPU {row.device_id}"
    return "a device" if row.pci_bus_id == "unknown" else f"the device at {row.pci_bus_id}"


FIXES = (
    Fix(
        "system",
        "take the device out of service, then nvidia-smi --gpu-reset -i <device> or a reboot, by the owner, when nothing runs on it",
        "a reset replaces bad rows; work on a failing device is lost or wrong",
        source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
    ),
    Fix(
        "system",
        "where the errors come again: nvidia-bug-report.sh, dcgmi diag -r 3, and a replacement of the card (RMA)",
        "the vendor's criteria decide on a replacement",
        source="https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
    ),
    Fix(
        "system",
        "CUDA_VISIBLE_DEVICES without that device",
        "the other devices can serve meanwhile",
        source="https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Faults,
    judge=judge,
    fixes=FIXES,
    verify="no new Xid of these kinds for a day under load; nvidia-smi -q -d ECC,ROW_REMAPPER shows counters that stand still.",
    doc=__doc__,
)
