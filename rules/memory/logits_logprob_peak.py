"""The logits of many tokens are computed or held at once, where those of the last would do.

What happens: a decode step needs the logits of one token a sequence. Log-probabilities of a prompt, an evaluation harness, or a
sampler that sorts the vocabulary need them for every token: tokens x vocabulary x 4 bytes, once for the logits, once for the softmax,
once for the sorting. Engines do not count that when they size the cache, so it fails under a load that looks harmless. A program that calls
the model itself and takes the last position of its answer pays for all of them: the output layer is its largest product.

How it is detected: the allocation fails in the sampler, the logits processor or log_softmax. The number of tokens that the failed size
stands for is given where the vocabulary is known. In a snapshot's history: the spike's largest block was made there.
In a time-line: the output layer takes at least a tenth of the window, and what follows it reads next to nothing of its result.

When it is not this: any large matrix product may have that size by chance, so without such a frame nothing is said. Attention and
feed-forward layers of a long prompt: `prefill-activation-peak`. A process of the same size in the list is the run itself:
`own-pid-in-container`.
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
    Sign,
    Stage,
    Target,
    Threshold,
    Verdict,
    Where,
)
from doctor.units import format_bytes

ABOUT = About(
    id="logits-logprob-peak",
    title="Logits of many tokens at once",
    stage=Stage.MEMORY,
    reads=("oom_event",),
    needs=("oom-text", "memory-snapshot"),
)

THRESHOLDS = {
    "bytes_per_logit": Threshold(
        4, "bytes", source="engines compute log-probabilities in fp32; vllm#5907, sglang#2607"
    ),
    "min_share": Threshold(0.1, "share of the window", source="own H200 recordings: 0.37, 1.59 times as fast without"),
    "min_unread": Threshold(2, "products", source="one may be what a program does once"),
    "last_token": Threshold(0.05, "of its time", source="own H200 recordings: 0.03, the weights have to be read still"),
    "spike_share": Threshold(0.15, "share of the device", source="as for a prefill's peak"),
}

SQL = """
SELECT tried_bytes, total_bytes, allocated_bytes, free_bytes, device_id, phase, stack, is_serving,
    (SELECT max(vocabulary_count) FROM model_shape) AS vocabulary_count,
    (SELECT max(told_count) FROM engine_choice WHERE setting = 'running_limit') AS sequence_count
FROM oom_cause WHERE cause = 'logits' ORDER BY source_id, oom_event_id LIMIT 1
"""


class Failure(NamedTuple):
    """A failure in the sampler or the logits."""

    tried_bytes: int | None
    total_bytes: int | None
    allocated_bytes: int | None
    free_bytes: int | None
    device_id: int | None
    phase: str | None
    stack: str | None
    is_serving: bool
    vocabulary_count: float | None
    sequence_count: float | None


def judge(row: Failure) -> Verdict:
    """The failing frames are the sampler's."""
    evidence: list[Evidence] = []
    tokens = None
    if row.tried_bytes is not None:
        evidence.append(Evidence("allocation that failed", row.tried_bytes, "bytes", Where(device_id=row.device_id)))
        if row.vocabulary_count:
            tokens = row.tried_bytes / row.vocabulary_count / THRESHOLDS["bytes_per_logit"].value
            evidence.append(Evidence("tokens whose logits have that size", tokens, "tokens"))
    if row.sequence_count is not None:
        evidence.append(Evidence("sequences that may run at once", row.sequence_count, "sequences"))
    if row.stack is not None:
        evidence.append(Evidence("where", row.stack, ""))
    stands_for = f", the fp32 logits of {tokens:,.0f} tokens" if tokens else ""
    asked = f"{format_bytes(row.tried_bytes)}{stands_for}" if row.tried_bytes is not None else "more than there was"
    return Finding(
        summary=f"the {'sampler' if row.phase == 'sampler' else 'output layer'} asked for {asked}",
        evidence=tuple(evidence) or (Evidence("phase", "sampler", "of the failure"),),
        severity=Severity.CRITICAL,
        bytes=row.tried_bytes,
        confidence=0.9 if row.stack is not None else 0.75,
    )


SPIKE_SQL = """
SELECT spike.device_id, peak_bytes, base_bytes, spike.stack, total_bytes, EXISTS (SELECT 1 FROM allocator_step WHERE action = 'oom') AS is_failed
FROM memory_spike AS spike JOIN snapshot_memory USING (source_id, device_id)
WHERE regexp_matches(spike.stack, 'logits|logprob|log_softmax|sampler')
ORDER BY peak_bytes - base_bytes DESC LIMIT 1
"""


class Spike(NamedTuple):
    """The highest level of a history, made by logits."""

    device_id: int | None
    peak_bytes: int
    base_bytes: int
    stack: str
    total_bytes: int
    is_failed: bool


def judge_spike(row: Spike) -> Verdict:
    """A visible part of the device."""
    spike = row.peak_bytes - row.base_bytes
    if spike < THRESHOLDS["spike_share"].value * row.total_bytes:
        return None
    return Finding(
        summary=f"logits raise memory from {format_bytes(row.base_bytes)} to {format_bytes(row.peak_bytes)} for a moment",
        evidence=(
            Evidence("spike", spike, "bytes", Where(device_id=row.device_id)),
            Evidence("largest block at the peak", row.stack, ""),
        ),
        severity=Severity.CRITICAL if row.is_failed else Severity.HIGH,
        bytes=spike,
        confidence=0.85,
    )


UNREAD_SQL = """
SELECT count(*) AS product_count, coalesce(sum(length_ns), 0)::BIGINT AS length_ns, median(length_ns) AS median_ns, max(longest_ns) AS longest_ns,
    arg_max(device_op.start_ns, length_ns) AS longest_start_ns, arg_max(device_op.end_ns, length_ns) AS longest_end_ns,
    (SELECT count(*) FROM device_busy) AS device_count, any_value(until_ns - from_ns) AS window_ns
FROM unread_logits JOIN device_op USING (device_op_id), steady_window
"""


class Unread(NamedTuple):
    """Products of the output layer whose result is hardly read."""

    product_count: int
    length_ns: int
    median_ns: float | None
    longest_ns: int | None
    longest_start_ns: int | None
    longest_end_ns: int | None
    device_count: int
    window_ns: int | None


def judge_unread(row: Unread) -> Verdict:
    """A visible part of the window."""
    if row.product_count < THRESHOLDS["min_unread"].value or not row.window_ns or not row.median_ns:
        return None
    share = row.length_ns / (row.window_ns * max(row.device_count, 1))
    if share < THRESHOLDS["min_share"].value:
        return None
    where = Where(start_ns=row.longest_start_ns, end_ns=row.longest_end_ns)
    return Finding(
        summary=f"the longest product of a pass, {row.median_ns / 1e6:.2f} ms, takes {share:.0%} of the window, and nothing behind it takes more than"
        f" {(row.longest_ns or 0) / 1e3:.0f} us: the logits of all positions are computed, and few are read",
        evidence=(
            Evidence("output layer", share, "share of window", where),
            Evidence("passes", float(row.product_count), "products"),
            Evidence("longest work on its result", (row.longest_ns or 0) / 1e3, "us"),
        ),
        cure=Cure(
            steps=(
                CureStep(
                    Target.DEVICE_OP,
                    Act.SCALE,
                    "SELECT device_op_id FROM unread_logits",
                    value=THRESHOLDS["last_token"].value,
                ),
            ),
            is_host_work=False,
        ),
        confidence=0.75,
        cleared="the logits of all positions are computed, but other things hold the run up",
        label="computed at every position, read at the last",
        fixes=TIME_FIXES,
        verify="record again: the output layer's product is as short as one of a layer.",
    )


TIME_FIXES = (
    Fix(
        "transformers",
        "model(..., logits_to_keep=1) (before 4.48: num_logits_to_keep); generate does so by itself",
        "the output layer runs over the last token only",
        source="https://huggingface.co/docs/transformers/main_classes/text_generation (checked on 5.24)",
    ),
    Fix(
        "pytorch",
        "lm_head(hidden[:, -1:]) in place of lm_head(hidden)[:, -1:]",
        "a product over one position a sequence in place of all of the prompt's",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html",
    ),
)

FIXES = (
    Fix(
        "pytorch",
        "the output layer, float() and log_softmax over pieces of 512 to 2,048 tokens, keeping only what is read of each (gather, argmax, the sum of"
        " losses); lm_head(hidden[:, -1:]) where only the next token is wanted",
        "logits of all tokens are never in memory at once: each copy takes tokens x vocabulary x 4 bytes",
        source="https://docs.pytorch.org/docs/stable/generated/torch.split.html",
    ),
    Fix(
        "vllm",
        "requests without prompt_logprobs; --max-num-batched-tokens lower; --gpu-memory-utilization lower by 0.05 to 0.1; --max-num-seqs lower"
        " where the warm-up of the sampler fails",
        "fewer tokens have logits at once, or there is room for them",
        source="https://github.com/vllm-project/vllm/issues/5907 (settings checked on main of 2026)",
    ),
    Fix(
        "sglang",
        "--chunked-prefill-size lower; --mem-fraction-static lower; return_logprob only with logprob_start_len near the end",
        "fewer tokens have logits at once, or there is room for them",
        source="https://github.com/sgl-project/sglang/issues/2607 (settings checked on main of 2026)",
    ),
    Fix(
        "tensorrt-llm",
        "gather_context_logits off; max_num_tokens lower",
        "the context's logits are not kept",
        source="https://nvidia.github.io/TensorRT-LLM/ (checked on llm_args.py of main)",
    ),
    Fix(
        "transformers",
        "logits_to_keep=1 in forward (before 4.48: num_logits_to_keep); generate does so by itself",
        "the output layer runs over the last token only",
        source="https://huggingface.co/docs/transformers/main_classes/text_generation (checked on 5.24)",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Failure,
    judge=judge,
    fixes=FIXES,
    verify="the same requests pass; memory at their peak stays under 95 % of the device.",
    doc=__doc__,
    also=(
        Sign(("device_op", "kernel"), ("nsys-report", "nsys-sqlite", "kineto"), UNREAD_SQL, Unread, judge_unread),
        Sign(("allocator_step",), ("memory-snapshot",), SPIKE_SQL, Spike, judge_spike),
    ),
)
