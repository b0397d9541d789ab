"""The device is too hot: it lowers its clock to cool down.

What happens: near its limit the driver, or the hardware itself, takes the clock down until the chip cools. Everything
that computes gets slower in proportion; what waits for memory or for the host hardly notices. A hardware slowdown is
the last resort and halves the clock or worse.

How it is detected: samples of a busy device whose event reasons (formerly throttle reasons) name heat, in at least 5 %
of them, or a counter of thermal slowdown that grew by 5 % of the time. Where reasons were not asked, a busy device whose
clock stays under 60 % of its most while it is hot; less surely so where reasons were asked and none was active, since some
drivers and virtual machines fill them with nothing. Idle samples do not count: an idle device lowers its clock on
purpose.

When it is not this: a cool device at its power limit is `power-capped`; a steady clock that somebody set is
`clocks-locked-low`. Both reasons are looked at first where they are known.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="thermal-throttle",
    title="The device is hot and slows down",
    stage=Stage.HARDWARE,
    reads=("gpu_busy_state",),
    needs=("nvml", "nvidia-smi"),
)

THRESHOLDS = {
    "min_share": Threshold(
        0.05, "share of busy samples", source="rammsguns/llm-rig#100: heat shows as soon as the device works"
    ),
    "max_clock_share": Threshold(
        0.6, "of the highest SM clock", source="rammsguns/llm-rig#100: 628 MHz sustained on a hot card"
    ),
    "hot_celsius": Threshold(
        83.0, "degrees Celsius", source="GeForce and workstation cards aim at 83 to 87 C before they slow down"
    ),
}

SQL = """
SELECT device_id, name, busy_count, reasoned_count, thermal_count, hw_thermal_count, power_cap_count, clock_setting_count, very_busy_count,
    sm_clock_hz, sm_clock_least_hz, sm_clock_max_hz, temperature_celsius, temperature_slowdown_celsius, thermal_ns, observed_ns, power_watts,
    power_limit_watts,
    (SELECT avg(busy_ns / (until_ns - from_ns)) FROM device_busy, steady_window) AS recorded_busy_share
FROM gpu_busy_state ORDER BY device_id
"""


class Heat(NamedTuple):
    """A device's busy samples."""

    device_id: int
    name: str | None
    busy_count: int
    reasoned_count: int
    thermal_count: int
    hw_thermal_count: int
    power_cap_count: int
    clock_setting_count: int
    very_busy_count: int
    sm_clock_hz: float | None
    sm_clock_least_hz: int | None
    sm_clock_max_hz: int | None
    temperature_celsius: float | None
    temperature_slowdown_celsius: float | None
    thermal_ns: int | None
    observed_ns: int | None
    power_watts: float | None
    power_limit_watts: float | None
    recorded_busy_share: float | None


def judge(row: Heat) -> Verdict:
    """Heat named by the driver, or a clock that only heat explains."""
    share = row.thermal_count / row.busy_count
    counted = row.thermal_ns / row.observed_ns if row.thermal_ns and row.observed_ns else 0.0
    if max(share, counted) >= THRESHOLDS["min_share"].value:
        return _hot(row, max(share, counted), "of busy time the driver names heat as the reason", 0.95)
    if row.reasoned_count and (row.power_cap_count or row.clock_setting_count):
        return _cool(row)
    clock = _clock_share(row)
    hot = row.temperature_slowdown_celsius or THRESHOLDS["hot_celsius"].value
    if (
        clock is not None
        and clock < THRESHOLDS["max_clock_share"].value
        and row.very_busy_count
        and (row.temperature_celsius or 0) >= hot
    ):
        asked = "though the driver names no reason" if row.reasoned_count else "reasons were not asked"
        return _hot(
            row,
            1.0,
            f"of busy samples have a clock that only heat explains; {asked}",
            0.5 if row.reasoned_count else 0.6,
        )
    return _cool(row) if row.reasoned_count else None


def _cool(row: Heat) -> Verdict:
    clock = _clock_share(row)
    if clock is None or clock >= THRESHOLDS["max_clock_share"].value or row.temperature_celsius is None:
        return None
    return Cleared(
        f"GPU {row.device_id} runs at {clock:.0%} of its clock, but heat is named in none of {row.reasoned_count} busy"
        f" samples ({row.temperature_celsius:.0f} C)"
    )


def _hot(row: Heat, share: float, words: str, confidence: float) -> Finding:
    clock = _clock_share(row)
    at = f", at {row.temperature_celsius:.0f} C" if row.temperature_celsius is not None else ""
    slow = (
        f"; its SM clock is {(row.sm_clock_hz or 0) / 1e6:.0f} of {(row.sm_clock_max_hz or 0) / 1e6:.0f} MHz"
        if clock
        else ""
    )
    evidence = [
        Evidence("busy time slowed down by heat", share, "share of busy samples", Where(device_id=row.device_id))
    ]
    if clock is not None:
        evidence.append(Evidence("SM clock", clock, "of its most"))
    if row.temperature_celsius is not None:
        evidence.append(Evidence("temperature", row.temperature_celsius, "C"))
    return Finding(
        summary=f"GPU {row.device_id}: in {share:.0%} {words}{at}{slow}",
        evidence=tuple(evidence),
        severity=Severity.CRITICAL if row.hw_thermal_count else _severity(row, clock),
        speedup_bound=_bound(row, clock),
        confidence=confidence,
        label=f"GPU {row.device_id}",
    )


def _bound(row: Heat, clock: float | None) -> float | None:
    """At most this, where all of the device's time is computing."""
    lost = (1 - clock) * (1.0 if row.recorded_busy_share is None else row.recorded_busy_share) if clock else 0.0
    return 1 / (1 - lost) if 0 < lost < 1 else None


def _severity(row: Heat, clock: float | None) -> Severity:
    """High, unless a recording shows that the device waits for other things."""
    if row.recorded_busy_share is None or clock is None:
        return Severity.HIGH
    return min(Severity.of_share((1 - clock) * row.recorded_busy_share), Severity.HIGH)


def _clock_share(row: Heat) -> float | None:
    if row.sm_clock_hz is None or not row.sm_clock_max_hz:
        return None
    return row.sm_clock_hz / row.sm_clock_max_hz


FIXES = (
    Fix(
        "system",
        "better airflow (fan curve, filters, free slots, inlet air); nvidia-smi -q -d TEMPERATURE,PERFORMANCE under load",
        "the clock comes back as soon as the chip is cooler",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html",
    ),
    Fix(
        "system",
        "nvidia-smi -i <device> -pl <watts> (by the machine's owner), then read the limit back: nvidia-smi -q -d POWER",
        "until the airflow is mended, a lower and steady clock beats one that saws up and down",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html (-pl in the help of 456.71 and later)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Heat,
    judge=judge,
    fixes=FIXES,
    verify="sample again under load: no thermal reason is active, and the SM clock is within 5 % of its most.",
    doc=__doc__,
)
