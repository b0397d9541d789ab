"""A layer is spread over more devices than it gains from.

What happens: each doubling of tensor parallelism halves the work of a device and keeps the meetings. At some width
devices mostly wait for each other: eight give three times the throughput of one, and as many separate replicas would
give eight.

How it is detected: benchmark rows of the same load at different widths: throughput of n devices over n times that of
one, under 60 %. Without a benchmark: a model that fits on one device (weights under 70 % of its memory) is spread over
several that are joined by a slow link or communicate in the open for 20 % of the time, or leaves each device with under
two billion parameters.

When it is not this: a model that does not fit on fewer devices needs its width. Wide layers lower the latency of a single
request and make room for KV cache; where that was the aim, throughput is the price, and the finding says so.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict
from doctor.units import format_stated

ABOUT = About(
    id="tp-too-wide",
    title="A layer is spread over too many devices",
    stage=Stage.SPECIFIC,
    reads=("width_scaling",),
    needs=("bench-table",),
)

THRESHOLDS = {
    "max_efficiency": Threshold(
        0.6, "of linear", source="rule of thumb; vllm-project/vllm#1873: four cards no better than one"
    ),
    "grave_efficiency": Threshold(
        0.4, "of linear", source="founding article: eight devices, three times the throughput"
    ),
    "max_weight_share": Threshold(0.7, "of one device's memory", source="vllm-project/vllm#4238: 7B on two devices"),
    "min_exposed": Threshold(0.2, "share of the window", source="vllm-project/vllm#4238: both devices at half load"),
    "min_parameters": Threshold(2e9, "parameters a device", source="rule of thumb: less does not fill one"),
}

SQL = """
SELECT narrow_count, wide_count, narrow_rate_hz, wide_rate_hz, load_count, is_latency, efficiency_share
FROM width_scaling ORDER BY wide_count DESC, efficiency_share LIMIT 1
"""


class Scaling(NamedTuple):
    """The widest run against the narrowest of the same load."""

    narrow_count: float
    wide_count: float
    narrow_rate_hz: float
    wide_rate_hz: float
    load_count: float | None
    is_latency: bool
    efficiency_share: float


def judge(row: Scaling) -> Verdict:
    """Less than linear, by how much."""
    times = row.wide_rate_hz / row.narrow_rate_hz
    said = f"{row.wide_count:.0f} devices give {times:.2f} times the {'speed' if row.is_latency else 'throughput'} of {row.narrow_count:.0f}"
    efficiency = row.efficiency_share
    if efficiency >= THRESHOLDS["max_efficiency"].value:
        return Cleared(f"{said}: {efficiency:.0%} of linear")
    return Finding(
        summary=f"{said}: {efficiency:.0%} of linear; {row.wide_count / row.narrow_count:.0f} replicas of {row.narrow_count:.0f} would give"
        f" {row.wide_count / row.narrow_count:.0f} times, if the latency of one request may stay",
        evidence=(
            Evidence("scaling", efficiency, "of linear"),
            Evidence("devices", row.wide_count, "devices"),
            Evidence("throughput of all", times, "x"),
        ),
        severity=Severity.CRITICAL if efficiency < THRESHOLDS["grave_efficiency"].value else Severity.HIGH,
        speedup_bound=1 / efficiency,
        confidence=0.85,
    )


FITTING_SQL = """
SELECT plan.tensor_parallel_count, plan.width_count, weight_bytes, parameter_count, memory_bytes, is_confirmed,
    (SELECT slow_pair_count > 0 OR is_p2p_off OR refused_pair_count > 0 OR shm_count > p2p_count FROM wiring) AS is_link_slow,
    (SELECT worst_kind FROM wiring) AS worst_kind,
    CASE WHEN plan.collective_count > 0 THEN (SELECT avg(exposed_communication_ns / (until_ns - from_ns)) FROM device_busy, steady_window) END AS exposed_share,
    (SELECT median(busy_share) FROM gpu_sample) AS busy_share,
    EXISTS (SELECT 1 FROM width_scaling) AS is_measured
FROM parallel_plan AS plan, model_room
WHERE plan.tensor_parallel_count > 1
"""


class Fit(NamedTuple):
    """A model, the devices it is spread over, and what joins them."""

    tensor_parallel_count: float
    width_count: float | None
    weight_bytes: int | None
    parameter_count: int | None
    memory_bytes: int | None
    is_confirmed: bool
    is_link_slow: bool | None
    worst_kind: str | None
    exposed_share: float | None
    busy_share: float | None
    is_measured: bool


def judge_fit(row: Fit) -> Verdict:
    """Fits on one, is spread over several, and pays for it."""
    if row.is_measured or not row.weight_bytes or not row.memory_bytes:
        return None
    share = row.weight_bytes / row.memory_bytes
    width = row.tensor_parallel_count
    if share > THRESHOLDS["max_weight_share"].value:
        return Cleared(
            f"{width:.0f} devices share a layer, and the weights need {share:.0%} of one device's memory: one is not enough"
        )
    pays = []
    if row.exposed_share is not None and row.exposed_share >= THRESHOLDS["min_exposed"].value:
        pays.append(f"{row.exposed_share:.0%} of the window is exposed communication")
    elif row.is_link_slow and row.exposed_share is None:
        pays.append(f"the devices are joined by a slow link ({row.worst_kind or 'no peer access'})")
    if (
        row.parameter_count
        and row.parameter_count / width < THRESHOLDS["min_parameters"].value
        and row.exposed_share is None
    ):
        pays.append(f"each holds {row.parameter_count / width / 1e9:.1f} billion parameters only")
    if not pays:
        return None
    return Finding(
        summary=f"the model fits on one device (weights {format_stated(f'{share:.0%} of its memory', is_confirmed=row.is_confirmed)}) and is spread over {width:.0f}; {'; '.join(pays)}; {width:.0f}"
        " replicas give more, unless the latency of one request or room for KV cache was the aim",
        evidence=(
            Evidence("weights", share, "of one device's memory"),
            Evidence("devices that share a layer", width, "devices"),
        ),
        severity=Severity.HIGH if row.exposed_share is not None or row.is_link_slow else Severity.MEDIUM,
        speedup_bound=1 / (1 - row.exposed_share) if row.exposed_share and row.exposed_share < 0.95 else None,
        confidence=0.7 if row.exposed_share is not None else 0.6,
    )


FIXES = (
    Fix(
        "vllm",
        "--tensor-parallel-size <smallest that holds weights and KV cache> --data-parallel-size <the rest>",
        "replicas do not wait for each other",
        source="https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html",
    ),
    Fix(
        "sglang",
        "--tp-size <smallest that holds weights and KV cache> --dp-size <the rest> (a router in front for several hosts)",
        "replicas do not wait for each other",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "tensor_parallel_size lowered, several instances behind a balancer",
        "replicas do not wait for each other",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        "one process a device in place of tp_plan='auto'",
        "replicas do not wait for each other",
        source="https://huggingface.co/docs/transformers/perf_infer_gpu_multi",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Scaling,
    judge=judge,
    fixes=FIXES,
    verify="tokens a second and device rise: run the same load at half the width with two replicas.",
    doc=__doc__,
    also=(
        Sign(
            reads=("parallel_plan", "model_room"),
            needs=("engine-config", "engine-log", "topology", "nvidia-smi"),
            sql=FITTING_SQL,
            row=Fit,
            judge=judge_fit,
        ),
    ),
)
