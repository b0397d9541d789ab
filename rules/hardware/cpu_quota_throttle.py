"""The host side is starved of CPU: a container's quota stops its threads, or too many threads want too few CPUs.

What happens: libraries count the machine's CPUs, start a thread for each, and the container's quota allows a few. Once
the quota of a period is used up every thread stands still until the next one, the launching thread with them, and the
device waits. Low CPU shares starve in the same way without any counter of it.

How it is detected: periods in which the container was stopped, at least 10 % of them; or runnable threads over twice
the quota; or pressure on CPU (PSI) of at least 10 %. Where a recording or samples show the device, it idles for at least
30 % of the time.

When it is not this: a device that is busy all the time waits for nobody, whatever the counters say. A slow host with
CPUs to spare is `host-dispatch-bound` or `step-gap-scheduler`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict

ABOUT = About(
    id="cpu-quota-throttle",
    title="The host side is starved of CPU",
    stage=Stage.HARDWARE,
    reads=("cpu_supply",),
    needs=("cgroup", "nvml"),
)

THRESHOLDS = {
    "min_throttled": Threshold(0.1, "of the periods", source="vllm-project/vllm#49460: stopped in nearly all periods"),
    "min_oversubscription": Threshold(
        2.0, "runnable threads a CPU of the quota", source="vllm-project/vllm#49460: 86 threads on 6 CPUs"
    ),
    "min_pressure": Threshold(
        0.1, "share of the time", source="Tanguille/cluster#4879: starved by shares, throttled never"
    ),
    "min_idle": Threshold(
        0.3, "share of the time", source="vllm-project/vllm#49460: multiprocessors active for 7 to 12 %"
    ),
    "min_periods": Threshold(100, "periods", source="fewer are ten seconds and say nothing of a habit"),
}

SQL = """
SELECT period_count, throttled_count, throttled_ns, quota_cpu_count, pressure_share, pressure_most_share, is_resource_unsaid, runnable_count, thread_count,
    cpu_share, process_count, cpu_count, cpu_allowed_count,
    coalesce((SELECT 1 - avg(busy_ns / (until_ns - from_ns)) FROM device_busy, steady_window),
        (SELECT 1 - avg(busy_share) FROM gpu_sample WHERE busy_share IS NOT NULL)) AS idle_share
FROM cpu_supply
"""


class Supply(NamedTuple):
    """CPU that the host side gets, and what the device does meanwhile."""

    period_count: int | None
    throttled_count: int | None
    throttled_ns: int | None
    quota_cpu_count: float | None
    pressure_share: float | None
    pressure_most_share: float | None
    is_resource_unsaid: bool | None
    runnable_count: int | None
    thread_count: int | None
    cpu_share: float | None
    process_count: int | None
    cpu_count: int | None
    cpu_allowed_count: int | None
    idle_share: float | None


def judge(row: Supply) -> Verdict:
    """Stopped, crowded or under pressure, with a device that waits."""
    throttled = (row.throttled_count or 0) / row.period_count if row.period_count else 0.0
    crowding = _crowding(row)
    pressure = row.pressure_share or 0.0
    signs = _signs(row, throttled, crowding, pressure)
    if not signs:
        return _well_supplied(row, throttled)
    if row.idle_share is not None and row.idle_share < THRESHOLDS["min_idle"].value:
        return Cleared(
            f"{'; '.join(signs)}, but the device is busy for {1 - row.idle_share:.0%} of the time: it waits for nobody"
        )
    idle = f", and the device idles for {row.idle_share:.0%} of the time" if row.idle_share is not None else ""
    evidence = [Evidence("periods stopped at the quota", throttled, "share of periods")] if row.period_count else []
    if crowding is not None:
        evidence.append(Evidence("threads that want to run", crowding, "for each CPU of the quota"))
    if row.pressure_share is not None:
        evidence.append(Evidence("pressure on CPU", pressure, "share of the time"))
    if row.idle_share is not None:
        evidence.append(Evidence("device idle", row.idle_share, "share of the time"))
    is_grave = throttled >= THRESHOLDS["min_throttled"].value or bool(idle)
    return Finding(
        summary="; ".join(signs) + idle,
        evidence=tuple(evidence),
        severity=Severity.HIGH if is_grave else Severity.MEDIUM,
        confidence=0.9 if idle and is_grave else 0.75 if is_grave else 0.55,
    )


def _signs(row: Supply, throttled: float, crowding: float | None, pressure: float) -> list[str]:
    found = []
    quota = f"a quota of {row.quota_cpu_count:.3g} CPUs" if row.quota_cpu_count else "its quota"
    if throttled >= THRESHOLDS["min_throttled"].value and (row.period_count or 0) >= THRESHOLDS["min_periods"].value:
        found.append(f"the container was stopped at {quota} in {throttled:.0%} of {row.period_count:,} periods")
    if crowding is not None and crowding > THRESHOLDS["min_oversubscription"].value:
        number = row.runnable_count if row.runnable_count is not None else row.thread_count
        words = "want to run" if row.runnable_count is not None else "were started"
        found.append(
            f"{number} threads {words} under {quota}"
            + (f" on a machine of {row.cpu_count} CPUs" if row.cpu_count else "")
        )
    if pressure >= THRESHOLDS["min_pressure"].value:
        unsaid = " (the text does not say of which resource)" if row.is_resource_unsaid else ""
        found.append(f"tasks wait for a CPU for {pressure:.0%} of the time{unsaid}")
    return found


def _crowding(row: Supply) -> float | None:
    """Threads for each CPU of the quota; all threads count where nobody asked which want to run and the machine is larger."""
    supply = row.quota_cpu_count
    if supply is None:
        return None
    if row.runnable_count is not None:
        return row.runnable_count / supply
    if row.thread_count is not None and (row.cpu_count is None or row.cpu_count > 2 * supply):
        return row.thread_count / supply / 2  # half of them sleep, as a rule of thumb
    return None


def _well_supplied(row: Supply, throttled: float) -> Verdict:
    if row.idle_share is None or row.idle_share < THRESHOLDS["min_idle"].value:
        return None
    seen = [f"stopped at its quota in {throttled:.1%} of the periods"] if row.period_count else []
    seen += [f"waiting for a CPU for {row.pressure_share:.1%} of the time"] if row.pressure_share is not None else []
    return (
        Cleared(f"the device idles for {row.idle_share:.0%}, but the host side is {' and '.join(seen)}")
        if seen
        else None
    )


FIXES = (
    Fix(
        "system",
        "raise the container's CPU limit and request (Kubernetes resources.limits.cpu, docker --cpus) to at least 2 CPUs and one for each rank",
        "launching threads are never stopped",
        source="https://docs.kernel.org/admin-guide/cgroup-v2.html",
    ),
    Fix(
        "pytorch",
        "OMP_NUM_THREADS=<CPUs of the quota / ranks>; torch.set_num_threads(...)",
        "thread pools fit the quota and not the machine",
        source="https://docs.pytorch.org/docs/stable/threading_environment_variables.html",
    ),
    Fix(
        "vllm",
        "OMP_NUM_THREADS=1 for each rank; VLLM_STRUCTURED_OUTPUT_MAX_COMPILE_WORKERS=<quota> where grammars are compiled (newest versions)",
        "grammar workers are counted from the machine's CPUs otherwise",
        source="https://github.com/vllm-project/vllm/pull/49461",
    ),
    Fix(
        "sglang",
        "OMP_NUM_THREADS=<quota / ranks>; --sleep-on-idle for schedulers that spin",
        "fewer threads want the same CPUs",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Supply,
    judge=judge,
    fixes=FIXES,
    verify="cat /sys/fs/cgroup/cpu.stat twice under load: nr_throttled stands still; inter-token latency is flat.",
    doc=__doc__,
)
