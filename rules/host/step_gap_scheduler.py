"""The host pauses between steps: scheduling, detokenising, sampling in Python, a lock.

What happens: between two steps the serving process decides what runs next, builds the batch, turns tokens into text
and answers clients. Where that is done on the thread that launches work, the device has nothing to do meanwhile.

How it is detected: a silence of a launching thread (no API call at all) that is twenty times its usual silence before
a launch and at least 500 us, in at least three steps. An annotation range that covers it gives its name. The win is
the run replayed with silences of the usual length, so a pause behind a full queue costs nothing.

When it is not this: silences around module loading are `lazy-module-load`; a thread that waits in a call is
`sync-in-step`; many short silences are `host-dispatch-bound`. A process that has no requests is idle, not slow.
"""

from typing import NamedTuple

from doctor.rule import (
    About,
    Act,
    Cure,
    CureStep,
    Evidence,
    Finding,
    Fix,
    Rule,
    Severity,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)

ABOUT = About(
    id="step-gap-scheduler",
    title="The host pauses between steps",
    stage=Stage.SPECIFIC,
    reads=("device_op", "thread_call"),
    needs=("nsys-report", "nsys-sqlite", "kineto"),
)

THRESHOLDS = {
    "min_pauses": Threshold(
        3, "steps with a pause", source="a cause seen once or twice is not what the run is made of"
    ),
}

SQL = """
WITH named AS (
    SELECT range_name, sum(silence_ns) AS named_ns FROM pause WHERE range_name IS NOT NULL
    GROUP BY range_name ORDER BY named_ns DESC, range_name LIMIT 1
)
SELECT count(*) AS pause_count, count(DISTINCT step_id) AS step_count, coalesce(sum(silence_ns), 0)::BIGINT AS silence_ns,
    coalesce(sum(idle_ns), 0)::BIGINT AS idle_ns, median(silence_ns) AS median_ns,
    arg_max(start_ns, silence_ns) AS longest_start_ns, arg_max(end_ns, silence_ns) AS longest_end_ns,
    (SELECT range_name FROM named) AS range_name, coalesce((SELECT named_ns FROM named), 0)::BIGINT AS named_ns,
    (SELECT count(*) FROM step) AS all_step_count,
    (SELECT until_ns - from_ns FROM steady_window) AS window_ns
FROM pause
"""


class Pauses(NamedTuple):
    """Long silences of launching threads in the window."""

    pause_count: int
    step_count: int
    silence_ns: int
    idle_ns: int
    median_ns: float | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    range_name: str | None
    named_ns: int
    all_step_count: int
    window_ns: int


CURE = Cure(
    steps=(CureStep(Target.SILENCE, Act.SET_DURATION_NS, "SELECT host_call_id, usual_silence_ns FROM pause"),),
)


def judge(row: Pauses) -> Verdict:
    """Pauses that come back."""
    if not row.pause_count or row.median_ns is None:
        return None
    seen = row.step_count if row.all_step_count else row.pause_count
    recurring = seen >= THRESHOLDS["min_pauses"].value
    name = row.range_name if row.named_ns >= 0.5 * row.silence_ns else None
    inside = f" inside `{name}`" if name else ""
    return Finding(
        summary=f"the launching thread fell silent {row.pause_count} times for {row.median_ns / 1e6:.1f} ms{inside};"
        f" the device idled for {row.idle_ns / row.window_ns:.0%} of the window meanwhile",
        evidence=(
            Evidence(
                "longest pause",
                ((row.longest_end_ns or 0) - (row.longest_start_ns or 0)) / 1e6,
                "ms",
                Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns, range=name),
            ),
            Evidence("pauses", float(row.pause_count), "pauses"),
            Evidence("device idle in pauses", row.idle_ns / row.window_ns, "share of window"),
        ),
        cure=CURE,
        confidence=0.9 if name else 0.75,
        cleared=f"{row.pause_count} pauses of the launching thread, but the device had work meanwhile",
        label=f"{name} takes {row.median_ns / 1e6:.0f} ms a step" if name else "",
        max_severity=Severity.CRITICAL if recurring else Severity.LOW,
    )


FIXES = (
    Fix(
        "pytorch",
        "schedule step n+1 while step n runs; move detokenising and HTTP to another process",
        "the device finds its next step queued when it ends one",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
    ),
    Fix(
        "vllm",
        "--async-scheduling; --api-server-count N; a larger --stream-interval",
        "scheduling overlaps the step; the API leaves the engine's core",
        source="https://docs.vllm.ai/en/latest/configuration/engine_args.html",
    ),
    Fix(
        "sglang",
        "drop --disable-overlap-schedule",
        "the overlap scheduler prepares the next batch during the step",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "disable_overlap_scheduler: false",
        "the next batch is prepared during the step",
        source="https://nvidia.github.io/TensorRT-LLM/llm-api/reference.html",
    ),
    Fix(
        "transformers",
        "move stopping criteria, streamers and logits processors off the decode loop",
        "Python between steps is what the device waits for",
        source="https://huggingface.co/docs/transformers/llm_optims",
    ),
    Fix(
        "engine",
        "--bookkeeping lean",
        "the pool is not checked in each step",
        source="python -m engine bench --help",
    ),
    Fix(
        "engine",
        "--bookkeeping lean --overlap",
        "the next step is scheduled while this one runs",
        source="python -m engine bench --help",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Pauses,
    judge=judge,
    fixes=FIXES,
    verify="record again: the gap from the last kernel of a step to the first of the next is under 5 % of the step.",
    doc=__doc__,
)
