"""Under Windows the driver has moved GPU memory to the computer's memory: no failure, but everything crawls.

What happens: with the WDDM driver model, since driver 536.40, an allocation that does not fit is served from system memory. Kernels then
read over PCIe, at a hundredth of the rate, and a run that ought to fail becomes many times slower instead.

How it is detected: PyTorch has allocated more than the device has; or the driver model is WDDM, or the machine is WSL, and 95 % and more
of the device is in use while it works.

When it is not this: boards whose GPU shares the computer's memory (GB10, Jetson) are left out. A full card under Linux fails:
`headroom-thin`.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="wddm-sysmem-fallback",
    title="GPU memory has spilled into system memory",
    stage=Stage.MEMORY,
    reads=("gpu_sample",),
    needs=("nvidia-smi", "nvml"),
)

THRESHOLDS = {
    "least_used_share": Threshold(
        0.95, "share of the device in use", source="stable-diffusion-webui#11063: a 12 GB card that is full"
    ),
}

SQL = """
SELECT device_id, name, total_bytes, used_bytes, busy_share, driver_model,
    EXISTS (SELECT 1 FROM host_sample WHERE operating_system = 'wsl') AS is_wsl
FROM device_holding WHERE used_bytes IS NOT NULL AND total_bytes > 0
ORDER BY used_bytes / total_bytes DESC LIMIT 1
"""


class Used(NamedTuple):
    """The fullest device."""

    device_id: int | None
    name: str | None
    total_bytes: int
    used_bytes: int
    busy_share: float | None
    driver_model: str | None
    is_wsl: bool


INTEGRATED = ("GB10", "Orin", "Jetson", "Tegra", "Thor", "Spark")


def judge(row: Used) -> Verdict:
    """Full, where full does not fail."""
    share = row.used_bytes / row.total_bytes
    is_windows = row.driver_model == "wddm" or row.is_wsl
    if (
        not is_windows
        or share < THRESHOLDS["least_used_share"].value
        or any(word in (row.name or "") for word in INTEGRATED)
    ):
        return None
    return Finding(
        summary=f"GPU {row.device_id or 0} is full ({format_bytes(row.used_bytes)} of {format_bytes(row.total_bytes)}) under"
        f" {'WSL' if row.is_wsl else 'WDDM'}, where the driver moves what does not fit to system memory",
        evidence=(
            Evidence("memory in use", row.used_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("share of the device", share, "share"),
            Evidence("driver model", row.driver_model or "unknown", ""),
        ),
        severity=Severity.CRITICAL,
        bytes=row.used_bytes,
        confidence=0.6,
    )


SPILLED_SQL = """
SELECT allocated_bytes + coalesce(unused_bytes, 0) AS held_bytes, total_bytes, device_id FROM oom_cause
WHERE cause = 'spilled' ORDER BY source_id, oom_event_id LIMIT 1
"""


class Spilled(NamedTuple):
    """A failure of a process that holds more than the device has."""

    held_bytes: int
    total_bytes: int
    device_id: int | None


def judge_spilled(row: Spilled) -> Verdict:
    """More is held than there is."""
    return Finding(
        summary=f"PyTorch holds {format_bytes(row.held_bytes)} on a GPU of {format_bytes(row.total_bytes)}: {format_bytes(row.held_bytes - row.total_bytes)}"
        " and more lie in system memory",
        evidence=(
            Evidence("held by PyTorch", row.held_bytes, "bytes", Where(device_id=row.device_id)),
            Evidence("size of the device", row.total_bytes, "bytes"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.held_bytes - row.total_bytes,
        confidence=0.9,
    )


FIXES = (
    Fix(
        "system",
        'NVIDIA Control Panel, Manage 3D settings, CUDA - Sysmem Fallback Policy: "Prefer No Sysmem Fallback" (WSL2 is reported to ignore it)',
        "what does not fit then fails at once, and can be seen",
        source="https://nvidia.custhelp.com/app/answers/detail/a_id/5490 (the setting exists since driver 546.01), https://github.com/microsoft/WSL/issues/11050",
    ),
    Fix(
        "system",
        "a smaller model, type or batch; or native Linux",
        "everything then fits into the device",
        source="https://github.com/AUTOMATIC1111/stable-diffusion-webui/discussions/11063",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Used,
    judge=judge,
    fixes=FIXES,
    verify="Task Manager shows no shared GPU memory in use while it works.",
    doc=__doc__,
    also=(Sign(("oom_event",), ("oom-text",), SPILLED_SQL, Spilled, judge_spilled),),
)
