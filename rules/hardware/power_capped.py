"""The power limit binds: the device lowers its clock to stay under it.

What happens: a limit below the product's own, set by an administrator, a rack controller or a data centre's power plan,
holds the SM clock down whenever the work draws more. Prefill and large batches compute and pay for it; decode waits for
memory, whose clock stays up, and hardly notices. A power brake is another matter: a signal from outside (power supply,
rack controller) that takes the clock down hard.

How it is detected: samples of a busy device. The software power cap is the reason in at least half of them and the
limit is below the product's default; or any of them names the hardware power brake. Where reasons were not asked, or none is
active under a clock of less than 60 %, power drawn at 97 % of a limit below the default. A cap that the
driver names far under the limit, with a low clock, is set by somebody else: the machine, its module, its supply.

When it is not this: at its default limit a device that draws all of it is simply working (`ruled_out` says so); a hot
device is `thermal-throttle`; a clock that somebody set is `clocks-locked-low`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where
from doctor.units import format_stated

ABOUT = About(
    id="power-capped",
    title="The power limit holds the clock down",
    stage=Stage.HARDWARE,
    reads=("gpu_busy_state",),
    needs=("nvml", "nvidia-smi"),
)

THRESHOLDS = {
    "min_share": Threshold(0.5, "share of busy samples", source="rule of thumb: short peaks reach any limit"),
    "at_limit": Threshold(0.97, "of the limit", source="rule of thumb: power is averaged over 25 to 1000 ms"),
    "under_limit": Threshold(
        0.85, "of the limit", source="public reports of A100 and V100 capped at 150 to 240 W by their machine"
    ),
    "hot_celsius": Threshold(85.0, "degrees Celsius", source="above it heat may hold the clock as well as power"),
    "memory_clock_up": Threshold(0.98, "of the highest memory clock", source="rule of thumb: decode waits for memory"),
    "slow_clock_share": Threshold(
        0.6, "of the highest SM clock", source="rammsguns/llm-rig#100: 628 MHz at a limit of 100 W, no reason active"
    ),
    "max_clock_share": Threshold(0.95, "of the highest SM clock", source="rule of thumb: less is within boost noise"),
}

SQL = """
SELECT state.device_id, state.name, busy_count, reasoned_count, power_cap_count, power_brake_count, thermal_count, sm_clock_hz, sm_clock_max_hz,
    memory_clock_hz, memory_clock_max_hz, power_watts, power_limit_watts,
    coalesce(power_limit_default_watts, power_stated_watts) AS default_watts, power_limit_default_watts IS NOT NULL AS is_default_known, coalesce(is_confirmed, true) AS is_confirmed,
    (SELECT avg(busy_ns / (until_ns - from_ns)) FROM device_busy, steady_window) AS recorded_busy_share, temperature_celsius
FROM gpu_busy_state AS state LEFT JOIN gpu_model USING (name) ORDER BY state.device_id
"""


class Power(NamedTuple):
    """A device's busy samples."""

    device_id: int
    name: str | None
    busy_count: int
    reasoned_count: int
    power_cap_count: int
    power_brake_count: int
    thermal_count: int
    sm_clock_hz: float | None
    sm_clock_max_hz: int | None
    memory_clock_hz: float | None
    memory_clock_max_hz: int | None
    power_watts: float | None
    power_limit_watts: float | None
    default_watts: float | None
    is_default_known: bool
    is_confirmed: bool
    recorded_busy_share: float | None
    temperature_celsius: float | None


def judge(row: Power) -> Verdict:
    """A limit under the default that binds, or a brake."""
    if row.power_brake_count:
        return _finding(
            row,
            f"the hardware power brake is on in {row.power_brake_count} of {row.busy_count} busy samples",
            Severity.HIGH,
            0.9,
            (BRAKE,),
        )
    share = row.power_cap_count / row.busy_count
    drawn = row.power_watts / row.power_limit_watts if row.power_watts and row.power_limit_watts else None
    is_named = row.reasoned_count and (row.power_cap_count or row.thermal_count or not _is_slow(row))
    binds = share >= THRESHOLDS["min_share"].value if is_named else (drawn or 0) >= THRESHOLDS["at_limit"].value
    if not binds or row.power_limit_watts is None:
        return None
    clock = _share(row.sm_clock_hz, row.sm_clock_max_hz)
    if row.reasoned_count and drawn is not None and drawn < THRESHOLDS["under_limit"].value and (clock or 1.0) < 0.8:
        words = f"the driver caps its power at {row.power_watts:.0f} W, far under the limit of {row.power_limit_watts:.0f} W: another limit holds"
        return _finding(row, words, Severity.MEDIUM, 0.5, (BRAKE,))
    innocent = _why_innocent(row)
    return Cleared(innocent) if innocent else _capped(row, share)


def _why_innocent(row: Power) -> str | None:
    """What else explains a device at its limit."""
    assert row.power_limit_watts is not None
    drawn = f"{row.power_watts:.0f} of " if row.power_watts is not None else ""
    at = f"GPU {row.device_id} draws {drawn}its limit of {row.power_limit_watts:.0f} W"
    if row.default_watts is None:
        return f"{at}; its default limit is not known"
    if row.power_limit_watts >= 0.99 * row.default_watts:
        default = "its default" if row.is_default_known else "what its product is sold with"
        return f"{at}, which is {format_stated(default, is_confirmed=row.is_default_known or row.is_confirmed)}: it is working"
    clock = _share(row.sm_clock_hz, row.sm_clock_max_hz)
    if clock is not None and clock >= THRESHOLDS["max_clock_share"].value:
        return f"{at} and holds {clock:.0%} of its clock"
    if row.thermal_count and row.thermal_count >= 0.5 * row.power_cap_count:
        return f"{at}, and heat is named in {row.thermal_count} of {row.busy_count} busy samples: cool it first"
    if not row.power_cap_count and (row.temperature_celsius or 0.0) >= THRESHOLDS["hot_celsius"].value:
        return f"{at}, but at {row.temperature_celsius:.0f} C heat may be the reason: nvidia-smi -q -d PERFORMANCE names it"
    return None


def _capped(row: Power, share: float) -> Finding:
    """The limit binds, and nothing else does."""
    clock = _share(row.sm_clock_hz, row.sm_clock_max_hz)
    memory = _share(row.memory_clock_hz, row.memory_clock_max_hz)
    memory_up = memory is not None and memory >= THRESHOLDS["memory_clock_up"].value
    default = f"{row.default_watts:.0f} W"
    said = (
        f"default {default}"
        if row.is_default_known
        else f"the product's is {format_stated(default, is_confirmed=row.is_confirmed)}"
    )
    words = f"the power limit of {row.power_limit_watts:.0f} W ({said}) binds"
    if share:
        words += f" in {share:.0%} of busy samples"
    return _finding(
        row,
        words,
        Severity.LOW if memory_up and (clock or 0) >= 0.8 else Severity.MEDIUM,
        (0.85 if share else 0.65) - (0.0 if row.is_default_known else 0.15),
    )


def _finding(
    row: Power, words: str, severity: Severity, confidence: float, fixes: tuple[Fix, ...] | None = None
) -> Finding:
    clock = _share(row.sm_clock_hz, row.sm_clock_max_hz)
    slow = f"; its SM clock is at {clock:.0%} of its most" if clock is not None else ""
    evidence = [
        Evidence(
            "busy samples under the software power cap",
            row.power_cap_count / row.busy_count,
            "share",
            Where(device_id=row.device_id),
        )
    ]
    if row.power_watts is not None and row.power_limit_watts:
        evidence.append(Evidence("power drawn", row.power_watts / row.power_limit_watts, "of the limit"))
    if clock is not None:
        evidence.append(Evidence("SM clock", clock, "of its most"))
    return Finding(
        summary=f"GPU {row.device_id}: {words}{slow}",
        evidence=tuple(evidence),
        severity=severity,
        speedup_bound=_bound(row, clock),
        confidence=confidence,
        label=f"GPU {row.device_id}",
        fixes=fixes or FIXES[:1],
    )


def _bound(row: Power, clock: float | None) -> float | None:
    """At most this, where all of the device's time is computing."""
    lost = (1 - clock) * (1.0 if row.recorded_busy_share is None else row.recorded_busy_share) if clock else 0.0
    return 1 / (1 - lost) if 0 < lost < 1 else None


def _is_slow(row: Power) -> bool:
    """A clock that some limit must hold, whatever the driver says of reasons."""
    return (_share(row.sm_clock_hz, row.sm_clock_max_hz) or 1.0) < THRESHOLDS["slow_clock_share"].value


def _share(now: float | None, most: float | None) -> float | None:
    return now / most if now is not None and most else None


BRAKE = Fix(
    "system",
    "check power supplies, cables and connectors, the rack controller (BMC, iDRAC) and its power policy; spread load over devices",
    "the signal comes from outside the setting and does not go away by itself",
    source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
)
FIXES = (
    Fix(
        "system",
        "nvidia-smi -i <device> -pl <default watts> (by the machine's owner; nvidia-smi -q -d POWER shows both)",
        "the clock rises until the next limit",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html (-pl in the help of 456.71 and later)",
    ),
    BRAKE,
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Power,
    judge=judge,
    fixes=FIXES,
    verify="sample again under load: the power cap is the reason in less than half of the samples, and the SM clock is up.",
    doc=__doc__,
)
