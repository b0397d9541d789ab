"""The load generator is the limit: the server waits for requests or for somebody to read its answers.

What happens: one Python process that sends requests and parses streams cannot keep up with a fast server. It offers less load than
it was told to, or stamps tokens late, and the figures it prints are its own.

How it is detected: two tools or two settings of a client against the same server under the same load differ by at least half. Or:
the log shows no queue, fewer running requests than half of the offered concurrency and a device idle for at least 30 % of
the time, while the client's core is full.

When it is not this: a device that is busy, or a queue at the server, mean that the server is the limit, whatever the client does.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict

ABOUT = About(
    id="client-bottleneck",
    title="The load generator is the limit, not the server",
    stage=Stage.RECORDING,
    reads=("bench_comparison",),
    needs=("bench-table",),
)

THRESHOLDS = {
    "min_ratio": Threshold(1.5, "x", source="vllm-project/vllm#39963: 11 x between two read buffers of one client"),
    "max_running": Threshold(0.5, "of the offered concurrency", source="rule of thumb: half of the load never arrives"),
    "min_idle": Threshold(0.3, "share of the time", source="rule of thumb: the server has room"),
    "min_client_cpu": Threshold(0.9, "of one core", source="one Python process is one core"),
}

CLIENT_NAMES = "bench|aiohttp|httpx|requests|openai|curl|locust|wrk|^k6|genai|guidellm|asyncio|client"
"""Of what a column `tool` or `backend` may name: engines are compared under these headings too."""

SQL = f"""
SELECT word, slow_told, fast_told, slow_hz, fast_hz, load_count, prompt_token_count,
    (SELECT max(waiting_sample_count / nullif(busy_count, 0)) FROM engine_queue) AS waiting_share
FROM bench_comparison WHERE slow_hz IS NOT NULL AND (word = 'client' OR word IN ('tool', 'backend')
    AND regexp_matches(slow_told, '{CLIENT_NAMES}') AND regexp_matches(fast_told, '{CLIENT_NAMES}'))
ORDER BY fast_hz / slow_hz DESC LIMIT 1
"""

LOG_SQL = """
WITH offered AS (SELECT max(coalesce(concurrency_count, batch_count)) AS offered, max(client_cpu_share) AS table_cpu FROM bench_row),
client AS (
    SELECT max(cpu_share) AS client_cpu FROM host_process WHERE pid NOT IN (SELECT pid FROM gpu_process WHERE pid IS NOT NULL)
),
device AS (SELECT avg(busy_share) AS busy_share FROM gpu_sample)
SELECT offered, running_p95_count, waiting_sample_count, busy_count, coalesce(table_cpu, client_cpu) AS client_cpu, busy_share
FROM engine_queue, offered, client, device WHERE offered IS NOT NULL ORDER BY busy_count DESC LIMIT 1
"""


class Clients(NamedTuple):
    """Two clients of one server."""

    word: str
    slow_told: str
    fast_told: str
    slow_hz: float
    fast_hz: float
    load_count: float | None
    prompt_token_count: float | None
    waiting_share: float | None


class Offered(NamedTuple):
    """What was offered and what arrived."""

    offered: float
    running_p95_count: float | None
    waiting_sample_count: int
    busy_count: int
    client_cpu: float | None
    busy_share: float | None


def judge(row: Clients) -> Verdict:
    """One client gets half as much again out of the same server."""
    ratio = row.fast_hz / row.slow_hz
    if ratio < THRESHOLDS["min_ratio"].value:
        return None
    return Finding(
        summary=f"the same server gives {row.fast_hz:.0f} a second to {row.fast_told} and {row.slow_hz:.0f} to {row.slow_told} under the same load:"
        f" the slower client measures itself",
        evidence=(
            Evidence("faster client against the slower", ratio, "x"),
            *((Evidence("prompt", row.prompt_token_count, "tokens"),) if row.prompt_token_count else ()),
        ),
        severity=Severity.HIGH,
        confidence=0.9,
        speedup_bound=ratio,
    )


def judge_log(row: Offered) -> Verdict:
    """No queue, a half-empty batch, an idle device, a full core."""
    if row.running_p95_count is None or row.busy_count < 5:
        return None
    arrives = row.running_p95_count / row.offered
    if arrives >= THRESHOLDS["max_running"].value:
        return None
    if row.waiting_sample_count > 0.05 * row.busy_count:
        return Cleared(
            f"only {row.running_p95_count:.0f} of {row.offered:.0f} offered requests run, but others wait at the server"
        )
    is_idle = row.busy_share is not None and 1 - row.busy_share >= THRESHOLDS["min_idle"].value
    is_full = row.client_cpu is not None and row.client_cpu >= THRESHOLDS["min_client_cpu"].value
    if not is_idle and not is_full:
        return None
    return Finding(
        summary=f"{row.offered:.0f} requests at a time were offered, {row.running_p95_count:.0f} arrived and none waited:"
        + (f" the client fills {row.client_cpu:.0%} of a core" if is_full else " the device idles"),
        evidence=(
            Evidence("running against offered", arrives, "share"),
            *((Evidence("client's CPU", row.client_cpu, "cores"),) if row.client_cpu is not None else ()),
            *((Evidence("device busy", row.busy_share, "share of the time"),) if row.busy_share is not None else ()),
        ),
        severity=Severity.HIGH if is_full and is_idle else Severity.MEDIUM,
        confidence=0.85 if is_full and is_idle else 0.5,
        speedup_bound=1 / max(arrives, 0.1),
    )


FIXES = (
    Fix(
        "system",
        "several client processes with a share of the load each; larger read buffers; a second tool as a check",
        "the figures become the server's",
        source="https://github.com/vllm-project/vllm/issues/39963",
    ),
    Fix(
        "vllm",
        "`vllm bench serve --max-concurrency N` in N/64 processes; --stream-interval 8 on the server",
        "fewer chunks to parse for the same tokens",
        source="https://docs.vllm.ai/en/latest/cli/bench/serve.html (checked with 0.27 to 0.30)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Clients,
    judge=judge,
    fixes=FIXES,
    verify="two tools agree within a tenth, and #running at the server is the concurrency that was offered.",
    doc=__doc__,
    also=(Sign(("engine_queue", "bench_row"), ("engine-log", "bench-table", "nvml"), LOG_SQL, Offered, judge_log),),
)
