"""Some experts get most of the tokens: their ranks work while the others wait in the exchange.

What happens: with expert parallelism each rank holds a part of the experts. Popular experts make their rank late, and
all ranks meet in the exchange of tokens before and after each layer of experts: the slowest decides.

How it is detected: tokens by rank, as the engine logs them (balance: mean over maximum) or as counters give them: under
0.8 over at least 200 forward passes with at least 32 tokens a part. Where all ranks were recorded: time in experts'
kernels, with the busiest rank at least 20 % over the mean. Or a table has the same load faster with experts spread anew.

When it is not this: few tokens a pass are uneven by chance. A rank whose other kernels are slow too is
`straggler-rank`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="moe-expert-imbalance",
    title="A few experts get most of the tokens",
    stage=Stage.SPECIFIC,
    reads=("expert_balance",),
    needs=("engine-log", "bench-table"),
)

THRESHOLDS = {
    "max_balance": Threshold(0.8, "mean over maximum", source="ROCm/ATOM PR#1210: 17 to 34 % more after evening out"),
    "min_spread": Threshold(0.2, "of the mean", source="ROCm/ATOM PR#1210: 17 to 34 % more after evening out"),
    "min_passes": Threshold(200, "forward passes", source="ROCm/ATOM PR#1210: few passes are uneven by chance"),
    "min_tokens": Threshold(32, "tokens a part and pass", source="ROCm/ATOM PR#1210: few tokens are uneven by chance"),
    "max_others": Threshold(
        0.5, "of the spread of experts", source="rule of thumb: a rank slow in all has about the same in all"
    ),
    "min_ratio": Threshold(1.1, "x", source="ROCm/ATOM PR#1210: 1.17 to 1.34; single runs differ by a tenth"),
    "min_kernels": Threshold(200, "kernels of experts a rank", source="fewer are a moment, not a habit"),
}

SQL = """
SELECT is_of_ranks, balance_share, median_share, step_count, is_by_step, mean_count, part_count, hot_id
FROM expert_balance ORDER BY balance_share LIMIT 1
"""


class Balance(NamedTuple):
    """How even the tokens are, over all passes."""

    is_of_ranks: bool
    balance_share: float | None
    median_share: float | None
    step_count: int
    is_by_step: bool
    mean_count: float | None
    part_count: int | None
    hot_id: int | None


def judge(row: Balance) -> Verdict:
    """Uneven for long, with tokens enough."""
    if row.balance_share is None:
        return None
    parts = "ranks" if row.is_of_ranks else "experts"
    said = f"tokens by {parts}: the mean is {row.balance_share:.0%} of the maximum"
    if row.balance_share >= THRESHOLDS["max_balance"].value:
        return Cleared(said)
    if not row.is_of_ranks:
        return Cleared(f"{said}; experts may be uneven as long as the ranks that hold them are not: ranks are not told")
    if row.is_by_step and row.step_count < THRESHOLDS["min_passes"].value:
        return Cleared(f"{said}, over {row.step_count} passes only: that may be chance")
    if row.mean_count is not None and row.mean_count < THRESHOLDS["min_tokens"].value:
        return Cleared(f"{said}, at {row.mean_count:.0f} tokens a part and pass: that may be chance")
    passes = f" over {row.step_count:,} passes" if row.is_by_step else ""
    hot = f"; rank {row.hot_id} gets most" if row.hot_id is not None else ""
    return Finding(
        summary=f"{said}{passes}{hot}",
        evidence=(
            Evidence("balance of ranks", row.balance_share, "mean over maximum"),
            Evidence("forward passes", float(row.step_count), "passes"),
        ),
        severity=Severity.HIGH,
        speedup_bound=1 / row.balance_share,
        confidence=0.85,
    )


TIME_SQL = """
WITH part AS (
    SELECT spent.*, met.compute_ns - moe_ns AS other_ns, avg(met.compute_ns - moe_ns) OVER () AS mean_other_ns
    FROM expert_rank_time AS spent LEFT JOIN meeting_rank AS met USING (source_id, pid, device_id)
)
SELECT part.rank, device_id, pid, moe_ns, op_count, mean_ns, most_ns, rank_count, until_ns - from_ns AS window_ns, other_ns, mean_other_ns
FROM part, steady_window
ORDER BY moe_ns DESC LIMIT 1
"""


class BusiestRank(NamedTuple):
    """The rank whose experts take longest."""

    rank: int
    device_id: int
    pid: int | None
    moe_ns: int
    op_count: int
    mean_ns: float
    most_ns: int
    rank_count: int
    window_ns: int
    other_ns: int | None
    mean_other_ns: float | None


def judge_time(row: BusiestRank) -> Verdict:
    """Longer in its experts than the others, and in nothing else."""
    if row.op_count < THRESHOLDS["min_kernels"].value:
        return None
    spread = (row.most_ns - row.mean_ns) / row.mean_ns if row.mean_ns else 0.0
    lost = (row.most_ns - row.mean_ns) / row.window_ns
    if spread < THRESHOLDS["min_spread"].value or lost < 0.02:
        return Cleared(
            f"experts' kernels take {spread:.0%} longer than the mean on the busiest of {row.rank_count} ranks"
        )
    others = row.other_ns / row.mean_other_ns - 1 if row.other_ns and row.mean_other_ns else 0.0
    if others >= spread * THRESHOLDS["max_others"].value:
        return Cleared(
            f"experts' kernels take {spread:.0%} longer than the mean on rank {row.rank}, and its other kernels {others:.0%}: it is slow in all"
        )
    return Finding(
        summary=f"rank {row.rank} spends {spread:.0%} more than the mean of {row.rank_count} ranks in its experts, {lost:.0%} of the window",
        evidence=(
            Evidence(
                "time in experts over the mean", spread, "of the mean", Where(device_id=row.device_id, pid=row.pid)
            ),
            Evidence("lost to the busiest rank", lost, "share of window"),
        ),
        severity=min(Severity.of_share(lost), Severity.HIGH),
        speedup_bound=1 / (1 - min(lost, 0.9)),
        confidence=0.75,
        label=f"rank {row.rank}",
    )


TABLE_SQL = """
SELECT word, slow_told, fast_told, slow_hz, fast_hz FROM bench_comparison
WHERE slow_hz > 0 AND (regexp_matches(word, 'eplb|balancer') AND regexp_matches(slow_told, '^(off|no|none|false|0|disabled?|-|\\(default\\))$')
    OR regexp_matches(word, 'redundant_experts') AND slow_told IN ('0', '0.0', 'none', '-', '(default)'))
ORDER BY fast_hz / slow_hz DESC LIMIT 1
"""


class Balanced(NamedTuple):
    """Two runs of one load, without and with experts spread anew."""

    word: str
    slow_told: str
    fast_told: str
    slow_hz: float
    fast_hz: float


def judge_table(row: Balanced) -> Verdict:
    """What spreading the experts has won is what the hot ones had cost."""
    ratio = row.fast_hz / row.slow_hz
    by = "copies of hot experts" if "redundant" in row.word else "experts spread by their load"
    if ratio < THRESHOLDS["min_ratio"].value:
        return Cleared(f"{by} make the same load {max(ratio - 1, 0):.0%} faster: within what single runs differ")
    return Finding(
        summary=f"{by} make the same load {ratio:.2f} times as fast ({row.slow_hz:.4g} to {row.fast_hz:.4g} a second): without, hot experts"
        " hold up the other ranks",
        evidence=(Evidence("throughput with experts spread against without", ratio, "x"),),
        severity=max(Severity.of_share(1 - 1 / ratio), Severity.MEDIUM),
        speedup_bound=ratio,
        speedup_expected=ratio,
        confidence=0.8,
    )


FIXES = (
    Fix(
        "vllm",
        '--enable-expert-parallel --enable-eplb --eplb-config \'{"num_redundant_experts": 32, "log_balancedness": true}\''
        " (--num-redundant-experts in older versions)",
        "hot experts are copied and spread again as the load changes",
        source="https://docs.vllm.ai/en/latest/serving/expert_parallel_deployment.html",
    ),
    Fix(
        "sglang",
        "--enable-eplb --ep-num-redundant-experts 32 --expert-balancedness-report-mode server_log"
        " (--enable-expert-distribution-metrics in older versions)",
        "hot experts are copied and spread again as the load changes",
        source="https://docs.sglang.ai/advanced_features/expert_parallelism.html",
    ),
    Fix(
        "tensorrt-llm",
        "moe_config: {load_balancer: {num_slots: <experts + copies>, layer_updates_per_iter: 1}}",
        "hot experts are copied and spread again as the load changes",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Balance,
    judge=judge,
    fixes=FIXES,
    verify="the engine's own figure of balance is over 0.9, and requests a second rise.",
    doc=__doc__,
    also=(
        Sign(
            reads=("expert_rank_time",),
            needs=("nsys-report", "nsys-sqlite", "kineto"),
            sql=TIME_SQL,
            row=BusiestRank,
            judge=judge_time,
        ),
        Sign(("bench_comparison",), ("bench-table",), TABLE_SQL, Balanced, judge_table),
    ),
)
