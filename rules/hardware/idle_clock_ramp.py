"""The first request after a pause is slow: the device has to wake up.

What happens: a device that rests for seconds lowers its clocks and its link; without persistence mode the driver even
unloads. The next request begins at the low clock, or waits for the driver, and everybody after it is fast again. With
sparse traffic nearly every request is a first one.

How it is detected: samples in which a device rested for at least 5 s at P5 or lower and then worked at under 70 % of its
clock; at least twice, since once may be anything. That persistence mode is off is said with it. In a client's log of
requests: those after at least 5 s of silence take twice as long as the others, again and again.

When it is not this: code that is loaded at the first use of a shape (`lazy-module-load`) is slow once, not after every
pause. A low clock through all of the work is heat, power or a setting.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="idle-clock-ramp",
    title="The first request after a pause is slow",
    stage=Stage.HARDWARE,
    reads=("clock_ramp",),
    needs=("nvml", "nvidia-smi"),
)

THRESHOLDS = {
    "max_clock_share": Threshold(
        0.7, "of the highest SM clock", source="rule of thumb: above it the ramp costs little"
    ),
    "min_state": Threshold(5, "P-state before", source="NVIDIA/Isaac-GR00T#379: idle states are P5 and lower"),
    "min_slowdown": Threshold(2.0, "times the median", source="NVIDIA/Isaac-GR00T#379: a spike after each idle time"),
    "min_rest_ns": Threshold(
        5e9, "ns of silence", source="NVIDIA/Isaac-GR00T#379: ten seconds; clocks fall within a few"
    ),
    "min_ramps": Threshold(2, "pauses", source="once may be module load or a cold cache; it has to come again"),
}

SQL = """
SELECT ramp.device_id, count(*) AS pause_count,
    count(*) FILTER (coalesce(state_before_id >= $min_state, sm_clock_before_hz < 0.5 * ramp.sm_clock_max_hz)
        AND ramp.sm_clock_hz < $max_clock_share * ramp.sm_clock_max_hz) AS slow_count,
    median(rest_ns) AS rest_ns, median(ramp.sm_clock_hz / ramp.sm_clock_max_hz) AS clock_share, any_value(ramp.sm_clock_max_hz) AS sm_clock_max_hz,
    bool_and(ramp.is_persistence_on) AS is_persistence_on,
    any_value(state.sm_clock_hz) AS busy_clock_hz
FROM clock_ramp AS ramp LEFT JOIN gpu_state AS state USING (device_id)
WHERE ramp.sm_clock_max_hz IS NOT NULL AND ramp.sm_clock_hz IS NOT NULL
GROUP BY ramp.device_id ORDER BY ramp.device_id
"""


class Pauses(NamedTuple):
    """Pauses of a device, and the clock at which it went on."""

    device_id: int
    pause_count: int
    slow_count: int
    rest_ns: float
    clock_share: float
    sm_clock_max_hz: int
    is_persistence_on: bool | None
    busy_clock_hz: float | None


def judge(row: Pauses) -> Verdict:
    """Slow after each pause, fast in between."""
    if row.slow_count < THRESHOLDS["min_ramps"].value or row.slow_count < 0.5 * row.pause_count:
        return None
    steady = (row.busy_clock_hz or 0) / row.sm_clock_max_hz
    if steady and steady < THRESHOLDS["max_clock_share"].value:
        return None
    off = row.is_persistence_on is False
    persistence = "; persistence mode is off" if off else ""
    return Finding(
        summary=f"GPU {row.device_id} wakes up at {row.clock_share:.0%} of its clock after {row.slow_count} of {row.pause_count} pauses of"
        f" {row.rest_ns / 1e9:.0f} s{persistence}",
        evidence=(
            Evidence("SM clock after a pause", row.clock_share, "of its most", Where(device_id=row.device_id)),
            Evidence("pauses with a slow start", float(row.slow_count), "pauses"),
        ),
        severity=Severity.MEDIUM if off else Severity.LOW,
        confidence=0.7,
        label=f"GPU {row.device_id}",
    )


LATENCY_SQL = """
WITH usual AS (
    SELECT median(latency_ns) AS latency_ns, count(*) AS request_count FROM request_latency WHERE idle_ns < 1000000000
)
SELECT count(*) AS pause_count, count(*) FILTER (one.latency_ns >= $min_slowdown * usual.latency_ns) AS slow_count,
    median(one.latency_ns) AS first_latency_ns, any_value(usual.latency_ns) AS usual_latency_ns, any_value(request_count) AS request_count,
    median(idle_ns) AS rest_ns, (SELECT bool_and(is_persistence_on) FROM gpu_state) AS is_persistence_on,
    (SELECT max(performance_state) FROM gpu_sample) AS state_id
FROM request_latency AS one, usual
WHERE idle_ns >= $min_rest_ns
HAVING count(*) > 0
"""


class FirstRequests(NamedTuple):
    """Requests after a pause against all others."""

    pause_count: int
    slow_count: int
    first_latency_ns: float
    usual_latency_ns: float | None
    request_count: int | None
    rest_ns: float
    is_persistence_on: bool | None
    state_id: int | None


def judge_requests(row: FirstRequests) -> Verdict:
    """Slow after each pause, and only then."""
    if not row.usual_latency_ns or not row.request_count:
        return None
    times = row.first_latency_ns / row.usual_latency_ns
    if row.slow_count < THRESHOLDS["min_ramps"].value or row.slow_count < 0.6 * row.pause_count:
        return Cleared(
            f"{row.slow_count} of {row.pause_count} requests after a pause are slow ({times:.1f} times the median): no habit"
        )
    rests = row.state_id is not None and row.state_id >= THRESHOLDS["min_state"].value
    off = row.is_persistence_on is False
    seen = ("; persistence mode is off" if off else "") + (f"; the device rests in P{row.state_id}" if rests else "")
    return Finding(
        summary=f"{row.slow_count} of {row.pause_count} requests after {row.rest_ns / 1e9:.0f} s of silence take {times:.1f} times the median of the"
        f" others{seen}",
        evidence=(
            Evidence("first request after a pause", times, "times the median"),
            Evidence("pauses", float(row.pause_count), "pauses"),
        ),
        severity=Severity.MEDIUM if off or rests else Severity.LOW,
        confidence=0.75 if off or rests else 0.5,
    )


FIXES = (
    Fix(
        "system",
        "nvidia-persistenced, or nvidia-smi -pm 1",
        "the driver stays loaded while nobody uses the device",
        source="https://docs.nvidia.com/deploy/driver-persistence/index.html",
    ),
    Fix(
        "system",
        "nvidia-smi -lgc <low>,<high> (by the owner), or a small request every few seconds to keep the device awake",
        "no ramp where latency of single requests counts; it costs idle power",
        source="https://docs.nvidia.com/deploy/nvidia-smi/index.html (-lgc in the help of 456.71 and later)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Pauses,
    judge=judge,
    fixes=FIXES,
    verify="the first request after 10 s of silence takes less than 1.2 times the median of the others.",
    doc=__doc__,
    also=(
        Sign(
            reads=("request_latency",), needs=("bench-table",), sql=LATENCY_SQL, row=FirstRequests, judge=judge_requests
        ),
    ),
)
