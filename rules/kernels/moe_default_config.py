"""The fused expert kernel runs with default tile sizes: nobody tuned it for this device and these experts.

What happens: the Triton kernel of a mixture of experts takes its tile sizes from a table per device, number of experts and width. Where
the table lacks a line the engine says so and takes a guess that works everywhere.

How it is detected: the engine's own line about a default MoE configuration.

When it is not this: this is an opportunity and may be worth nothing. Tuned tables gave 1.1 to 1.6 times on one device at small
batches and nothing at all on another; experts that run in other kernels (CUTLASS, DeepGEMM, Marlin) do not look at the table.
"""

from typing import NamedTuple

from doctor.rule import About, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict

ABOUT = About(
    id="moe-default-config",
    title="The expert kernel is not tuned for this device",
    stage=Stage.OPPORTUNITY,
    reads=("engine_event",),
    needs=("engine-log",),
)

THRESHOLDS = {
    "most_promised": Threshold(
        1.35, "x", source="vllm-project/vllm PR#44152, #42465, #40542: 1.00 (A100, decode) to 1.6 (H20, small batch)"
    ),
}

SQL = """
SELECT count(*) AS line_count, max(detail) AS device_name, any_value(engine) AS engine FROM engine_event WHERE event = 'moe_default'
"""


class Untuned(NamedTuple):
    """Lines about a missing table."""

    line_count: int
    device_name: str | None
    engine: str | None


def judge(row: Untuned) -> Verdict:
    """One line is enough."""
    if not row.line_count:
        return None
    where = f" for {row.device_name.replace('_', ' ')}" if row.device_name else ""
    return Finding(
        summary=f"the fused expert kernel has no tuned configuration{where}: tuning gave 0 to 60 % in public cases",
        evidence=(
            Evidence("lines about a default configuration", float(row.line_count), "lines"),
            *((Evidence("device", row.device_name, ""),) if row.device_name else ()),
        ),
        severity=Severity.LOW,
        confidence=0.4,
        speedup_bound=THRESHOLDS["most_promised"].value,
    )


FIXES = (
    Fix(
        "vllm",
        "python benchmarks/kernels/benchmark_moe.py --tune --model MODEL --tp-size N; VLLM_TUNED_CONFIG_FOLDER=FOLDER",
        "writes the missing table and has it read",
        source="https://docs.vllm.ai/en/latest/configuration/env_vars.html (checked with 0.27 to 0.30)",
    ),
    Fix(
        "sglang",
        "python benchmark/kernels/fused_moe_triton/tuning_fused_moe_triton.py --model MODEL --tp-size N --tune",
        "writes the missing table",
        source="https://github.com/sgl-project/sglang/tree/main/benchmark/kernels/fused_moe_triton (checked with 0.5.9 to 0.5.18)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Untuned,
    judge=judge,
    fixes=FIXES,
    verify="the line is gone; compare the time of fused_moe kernels before and after: it may be the same.",
    doc=__doc__,
)
