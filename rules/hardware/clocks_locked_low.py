"""Somebody set the clock low: application clocks or locked clocks under the product's most.

What happens: a clock that was locked for a benchmark, for even ranks or to save power stays locked until it is reset.
The device is cool, draws little, and everything that computes takes longer in proportion.

How it is detected: samples of a busy device. Its event reasons name the clock setting in at least 80 % of them, or its
application clock is set low, and its SM clock is under 80 % of the most. Where neither was asked, a clock that does not
move by a step over many busy samples, under 80 %, with neither heat nor power as a reason.

When it is not this: heat (`thermal-throttle`) and power (`power-capped`) move the clock up and down. The state of a
device that is hardly used is no setting: only busy samples count.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="clocks-locked-low",
    title="The clock is set below what the device can do",
    stage=Stage.HARDWARE,
    reads=("gpu_busy_state",),
    needs=("nvml", "nvidia-smi"),
)

THRESHOLDS = {
    "min_share": Threshold(0.8, "share of busy samples", source="rule of thumb: a setting holds always"),
    "max_clock_share": Threshold(
        0.8, "of the highest SM clock", source="rule of thumb: servers lock a little on purpose"
    ),
    "min_samples": Threshold(5, "busy samples", source="fewer do not show that a clock stands still"),
    "max_power_share": Threshold(0.9, "of the power limit", source="rule of thumb: above it power may hold the clock"),
}

SQL = """
SELECT device_id, name, busy_count, reasoned_count, clock_setting_count, thermal_count, power_cap_count, power_brake_count, sm_clock_hz,
    sm_clock_max_hz, sm_clock_application_hz, sm_clock_count, sm_clock_least_hz, sm_clock_busy_most_hz, power_most_watts, power_limit_watts,
    temperature_celsius,
    (SELECT avg(busy_ns / (until_ns - from_ns)) FROM device_busy, steady_window) AS recorded_busy_share
FROM gpu_busy_state WHERE sm_clock_hz IS NOT NULL AND sm_clock_max_hz IS NOT NULL ORDER BY device_id
"""


class Clock(NamedTuple):
    """A device's busy samples."""

    device_id: int
    name: str | None
    busy_count: int
    reasoned_count: int
    clock_setting_count: int
    thermal_count: int
    power_cap_count: int
    power_brake_count: int
    sm_clock_hz: float
    sm_clock_max_hz: int
    sm_clock_application_hz: float | None
    sm_clock_count: int
    sm_clock_least_hz: int
    sm_clock_busy_most_hz: int
    power_most_watts: float | None
    power_limit_watts: float | None
    temperature_celsius: float | None
    recorded_busy_share: float | None


def judge(row: Clock) -> Verdict:
    """Low, by a setting."""
    clock = row.sm_clock_hz / row.sm_clock_max_hz
    if clock >= THRESHOLDS["max_clock_share"].value or row.thermal_count or row.power_brake_count:
        return None
    if row.power_cap_count / row.busy_count >= 0.5:
        return None
    named = row.clock_setting_count / row.busy_count
    if row.reasoned_count and named >= THRESHOLDS["min_share"].value:
        return _finding(
            row, clock, f"the driver names the clock setting as the reason in {named:.0%} of busy samples", 0.9
        )
    asked = row.sm_clock_application_hz
    if (
        asked is not None
        and asked < THRESHOLDS["max_clock_share"].value * row.sm_clock_max_hz
        and asked >= 0.97 * row.sm_clock_hz
    ):
        return _finding(row, clock, f"its application clock is set to {asked / 1e6:.0f} MHz", 0.85)
    is_still = (
        row.sm_clock_busy_most_hz - row.sm_clock_least_hz <= 15e6 and row.busy_count >= THRESHOLDS["min_samples"].value
    )
    if is_still and not row.clock_setting_count and _has_room(row):
        return _finding(
            row, clock, f"its clock does not move over {row.busy_count} busy samples, and nothing else holds it", 0.6
        )
    return None


def _has_room(row: Clock) -> bool:
    """Neither power nor heat explains the clock, as far as is known."""
    drawn = (row.power_most_watts or 0.0) / row.power_limit_watts if row.power_limit_watts else 0.0
    return drawn < THRESHOLDS["max_power_share"].value and (row.temperature_celsius or 0.0) < 80


def _finding(row: Clock, clock: float, words: str, confidence: float) -> Finding:
    busy = 1.0 if row.recorded_busy_share is None else row.recorded_busy_share
    lost = (1 - clock) * busy
    waits = f"; a recording shows it busy for {busy:.0%} of the time only" if busy < 0.7 else ""
    return Finding(
        summary=f"GPU {row.device_id} computes at {row.sm_clock_hz / 1e6:.0f} of {row.sm_clock_max_hz / 1e6:.0f} MHz: {words}{waits}",
        evidence=(
            Evidence("SM clock", clock, "of its most", Where(device_id=row.device_id)),
            Evidence("busy samples that name the setting", row.clock_setting_count / row.busy_count, "share"),
        ),
        # what waits for its host hardly notices a slow clock
        severity=Severity.HIGH if row.recorded_busy_share is None else min(Severity.of_share(lost), Severity.HIGH),
        speedup_bound=1 / (1 - lost),
        confidence=confidence,
        label=f"GPU {row.device_id}",
    )


FIXES = (
    Fix(
        "system",
        "nvidia-smi -i <device> -rgc (locked clocks), and -rac (application clocks, which go away with CUDA 14), by the owner",
        "the device may use its whole range again; ask first who set it and why",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html (both in the help of 456.71 and later),"
        " https://docs.nvidia.com/deploy/nvml-api/api/deprecated.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Clock,
    judge=judge,
    fixes=FIXES,
    verify="sample again under load: the SM clock is within 5 % of its most, and no clock setting is named.",
    doc=__doc__,
)
