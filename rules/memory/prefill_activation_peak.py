"""A long prefill needs far more memory for a moment than the run holds the rest of the time.

What happens: activations grow with the tokens that are computed at once. A prompt of many thousand tokens, taken in one piece, needs
its intermediate tensors of attention and feed-forward layers side by side; attention that writes out its scores needs their square.
Memory falls back as soon as the step is over, so that nothing is to be seen between failures.

How it is detected: an allocation fails in attention or feed-forward of a prefill or of the engine's own profiling run, and neither
other processes, fragmentation nor a reserved cache explain it; or one request of a quarter of the device fails and nothing tells
where; or the trial run of a start that was left nothing for its KV cache peaks at
15 % of the device; or a server says that its largest batch of prompts does not fit. In a
snapshot's history: the level rises by at least 15 % of the device
for less than a fifth of the time and falls back to where it was; looks of nvidia-smi, or levels that a program printed, show the same with
less certainty, since somebody else may have come and gone.

When it is not this: a KV cache that grows stays: `kv-unpaged-contiguous`. The tensor of all logits: `logits-logprob-peak`. Failures
while weights are loaded: `weights-overcommit`.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Sign, Stage, Threshold, Verdict, Where
from doctor.units import format_bytes

ABOUT = About(
    id="prefill-activation-peak",
    title="A prefill needs too much memory at once",
    stage=Stage.MEMORY,
    reads=("oom_event",),
    needs=("oom-text", "memory-snapshot"),
)

THRESHOLDS = {
    "spike_share": Threshold(0.15, "share of the device", source="omlx#1522: 42.8 GB at the failure, 24.6 right after"),
    "most_of_history": Threshold(
        0.2, "share of the history above half the spike", source="a spike is short; what stays is a cache"
    ),
    "most_left": Threshold(0.2, "share of the spike that stays", source="omlx#1522: memory falls back at once"),
}

SQL = """
SELECT tried_bytes, total_bytes, allocated_bytes, free_bytes, device_id, phase, hot_spot, framework, stack, is_serving FROM oom_cause
WHERE cause = 'activation' ORDER BY source_id, oom_event_id LIMIT 1
"""


class Failure(NamedTuple):
    """A failure in the layers of a prefill."""

    tried_bytes: int | None
    total_bytes: int | None
    allocated_bytes: int | None
    free_bytes: int | None
    device_id: int | None
    phase: str | None
    hot_spot: str | None
    framework: str | None
    stack: str | None
    is_serving: bool


PARTS = {"attention": "attention", "feed_forward": "a feed-forward layer"}


def asked_for(row: Failure) -> str:
    """What failed, as far as the message has figures."""
    if row.tried_bytes is None and row.allocated_bytes is not None and row.total_bytes is not None:
        return f"took {format_bytes(row.allocated_bytes)} where {format_bytes(row.total_bytes)} are the limit"
    if row.tried_bytes is None:
        return "found no memory"
    if row.total_bytes is None:
        return f"asked for {format_bytes(row.tried_bytes)}, and the message does not say of how much"
    if row.allocated_bytes is None:
        return f"asked for {format_bytes(row.tried_bytes)} on a device of {format_bytes(row.total_bytes)}"
    held = f"{format_bytes(row.allocated_bytes)} of {format_bytes(row.total_bytes)}"
    return f"asked for {format_bytes(row.tried_bytes)} with {held} allocated already"


def known(row: Failure) -> tuple[Evidence, ...]:
    """The figures that the message has."""
    figures = (("allocation that failed", row.tried_bytes), ("allocated before", row.allocated_bytes))
    found = [
        Evidence(name, size, "bytes", Where(device_id=row.device_id)) for name, size in figures if size is not None
    ]
    return tuple(found) or (Evidence("phase", row.phase or "unknown", "of the failure"),)


def judge(row: Failure) -> Verdict:
    """The failing frames are a layer's."""
    part = PARTS.get(row.hot_spot or "", "a layer" if row.stack or row.phase else "one tensor")
    when = (
        "the engine's profiling run" if row.phase == "profile" else "a prefill" if row.phase == "prefill" else "a step"
    )
    where = (Evidence("where", row.stack, ""),) if row.stack else ()
    return Finding(
        summary=f"{part} of {when} {asked_for(row)}",
        evidence=(
            *known(row),
            *where,
        ),
        severity=Severity.CRITICAL,
        bytes=row.tried_bytes,
        confidence=0.8 if row.phase is not None else 0.5,
        fixes=STARTING if row.phase == "profile" and not row.is_serving else FIXES,
    )


REFUSED_SQL = """
SELECT model_length_count AS token_count FROM refusal WHERE refusal = 'prefill_tokens'
    AND NOT EXISTS (SELECT 1 FROM oom WHERE total_bytes IS NOT NULL)
ORDER BY source_id, line_id LIMIT 1
"""


class Refused(NamedTuple):
    """A server that could not compute its largest batch of prompts before it began."""

    token_count: int | None


def judge_refused(row: Refused) -> Verdict:
    """The server's own words, where no failure with figures stands beside them."""
    tokens = f"{row.token_count:,} tokens of prompts" if row.token_count else "its largest batch of prompts"
    return Finding(
        summary=f"the server found no memory for {tokens} at once, and did not start",
        evidence=(Evidence("tokens of prompts in one batch", row.token_count or 0, "tokens"),),
        severity=Severity.CRITICAL,
        confidence=0.75,
        fixes=(TGI,),
    )


TRIAL_SQL = """
SELECT kv_bytes, activation_bytes, total_bytes FROM starved_start
WHERE cause = 'activation' AND NOT EXISTS (SELECT 1 FROM oom WHERE total_bytes IS NOT NULL)
"""


class Trial(NamedTuple):
    """An engine whose trial run left nothing for the KV cache."""

    kv_bytes: int | None
    activation_bytes: int
    total_bytes: int


def judge_trial(row: Trial) -> Verdict:
    """The engine's own figures: the peak of its trial run is the largest part that a setting shrinks."""
    left = f" ({format_bytes(row.kv_bytes)})" if row.kv_bytes is not None else ""
    return Finding(
        summary=f"the engine's trial run peaks at {format_bytes(row.activation_bytes)} of {format_bytes(row.total_bytes)}, and nothing is left for the"
        f" KV cache{left}",
        evidence=(
            Evidence("activations of the trial run", row.activation_bytes, "bytes"),
            Evidence("share of the device", row.activation_bytes / row.total_bytes, "share"),
        ),
        severity=Severity.CRITICAL,
        bytes=row.activation_bytes,
        confidence=0.75,
        fixes=(TRIED, VLLM, TENSORRT),
    )


SPIKE_SQL = """
SELECT spike.device_id, peak_bytes, base_bytes, end_bytes, share_of_history, piece_count, spike.stack, total_bytes,
    EXISTS (SELECT 1 FROM allocator_step WHERE action = 'oom') AS is_failed,
    EXISTS (SELECT 1 FROM oom_cause WHERE cause NOT IN ('activation', 'full', 'unknown')) AS is_explained
FROM memory_spike AS spike JOIN snapshot_memory USING (source_id, device_id)
ORDER BY peak_bytes - base_bytes DESC LIMIT 1
"""


class Spike(NamedTuple):
    """The highest level of a history."""

    device_id: int | None
    peak_bytes: int
    base_bytes: int
    end_bytes: int
    share_of_history: float
    piece_count: int
    stack: str | None
    total_bytes: int
    is_failed: bool
    is_explained: bool


def judge_spike(row: Spike) -> Verdict:
    """High, short, and gone."""
    spike = row.peak_bytes - row.base_bytes
    if spike <= 0 or spike < THRESHOLDS["spike_share"].value * row.total_bytes or row.is_explained:
        return None
    is_logits = any(word in (row.stack or "") for word in ("logits", "logprob", "log_softmax", "sampler"))
    left = abs(row.end_bytes - row.base_bytes)
    if row.share_of_history > THRESHOLDS["most_of_history"].value or left > THRESHOLDS["most_left"].value * spike:
        return Cleared(f"memory rises by {format_bytes(spike)}, and stays: what was made is kept")
    if is_logits:
        return None
    return Finding(
        summary=f"memory rises from {format_bytes(row.base_bytes)} to {format_bytes(row.peak_bytes)} for {row.share_of_history:.0%} of the history"
        " and falls back",
        evidence=(
            Evidence("spike", spike, "bytes", Where(device_id=row.device_id)),
            Evidence("share of the device", spike / row.total_bytes, "share"),
            Evidence("share of the history above half of it", row.share_of_history, "share"),
            *((Evidence("largest block at the peak", row.stack, ""),) if row.stack else ()),
        ),
        severity=Severity.CRITICAL if row.is_failed else Severity.HIGH,
        bytes=spike,
        confidence=0.8,
    )


LEVELS_SQL = """
SELECT device_id, base_bytes, peak_bytes, total_bytes, look_count, high_count, is_own FROM level_spike
WHERE high_count <= $most_of_history * look_count AND peak_bytes - base_bytes >= $spike_share * total_bytes
    AND (is_own OR coalesce(busy_share, 1) >= 0.1)
ORDER BY is_own DESC, peak_bytes - base_bytes DESC LIMIT 1
"""


class Levels(NamedTuple):
    """The highest of many looks at memory, with the same level before and behind it."""

    device_id: int | None
    base_bytes: int
    peak_bytes: int
    total_bytes: int
    look_count: int
    high_count: int
    is_own: bool


def judge_levels(row: Levels) -> Verdict:
    """High, short, and gone, as far as looks from outside can tell."""
    spike = row.peak_bytes - row.base_bytes
    whose = "" if row.is_own else ": activations of a long prefill, unless another process came and went"
    is_close = row.peak_bytes >= 0.95 * row.total_bytes
    return Finding(
        summary=f"memory rises from {format_bytes(row.base_bytes)} to {format_bytes(row.peak_bytes)} in {row.high_count} of {row.look_count} looks and"
        f" falls back{whose}",
        evidence=(
            Evidence("spike", spike, "bytes", Where(device_id=row.device_id)),
            Evidence("share of the device", spike / row.total_bytes, "share"),
        ),
        severity=Severity.HIGH if is_close else Severity.MEDIUM,
        bytes=spike,
        confidence=0.65 if row.is_own else 0.5,
    )


VLLM = Fix(
    "vllm",
    "--max-num-batched-tokens 2048 to 8192 with chunked prefill (on by default in V1)",
    "a prompt is taken in pieces of that many tokens: the spike shrinks in proportion",
    source="https://docs.vllm.ai/en/latest/configuration/optimization.html (checked on main of 2026)",
)
TENSORRT = Fix(
    "tensorrt-llm",
    "max_num_tokens: 2048 to 8192; enable_chunked_prefill: true",
    "a prompt is taken in pieces",
    source="https://nvidia.github.io/TensorRT-LLM/ (checked on llm_args.py of main)",
)
TRANSFORMERS = Fix(
    "transformers",
    'attn_implementation="sdpa" or "flash_attention_2"; prefill_chunk_size=N in generate',
    "attention no longer writes its scores out; a prompt is taken in pieces",
    source="https://huggingface.co/docs/transformers/llm_optims (prefill_chunk_size checked on 5.24)",
)
PYTORCH = Fix(
    "pytorch",
    "torch.inference_mode(); F.scaled_dot_product_attention in place of softmax(q @ k.T) @ v; the prompt in pieces of 2,048 to 8,192 tokens that"
    " append to the KV cache",
    "nothing is kept for a backward pass, scores are not written out, and a piece's activations are freed before the next",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
)
TGI = Fix(
    "tgi",
    "--max-batch-prefill-tokens lower (and --max-input-tokens with it); --cuda-memory-fraction only where nobody else is on the device",
    "the start computes a batch of that many tokens, and so do long prompts later",
    source="https://huggingface.co/docs/text-generation-inference/reference/launcher",
)
FIXES = (
    VLLM,
    Fix(
        "sglang",
        "--chunked-prefill-size 2048 to 8192, and --mem-fraction-static LOWER",
        "the static pool leaves room for activations; at the start the opposite holds",
        source="https://docs.sglang.ai/advanced_features/hyperparameter_tuning.html (checked on main of 2026), sglang PR#23181",
    ),
    TENSORRT,
    TGI,
    TRANSFORMERS,
    PYTORCH,
)
TRIED = Fix(
    "vllm",
    "--max-num-batched-tokens 2048, fewer --max-num-seqs, --limit-mm-per-prompt for models that see images; --gpu-memory-utilization up where"
    " nobody else is on the device",
    "the trial run computes the largest batch that these allow, and the cache gets what it leaves",
    source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
)
STARTING = (
    Fix(
        "vllm",
        "--max-num-batched-tokens and --max-num-seqs lower, or --gpu-memory-utilization lower by 0.02 to 0.05",
        "the profiling run takes the largest batch that these allow",
        source="https://docs.vllm.ai/en/latest/configuration/conserving_memory.html (checked on main of 2026)",
    ),
    Fix(
        "sglang",
        "--chunked-prefill-size 2048 to 4096; --mem-fraction-static lower where the failure is an activation, higher where the pool is too small",
        "the two failures of a start need opposite moves",
        source="https://docs.sglang.ai/advanced_features/hyperparameter_tuning.html (checked on main of 2026), sglang PR#23181",
    ),
    TENSORRT,
    TGI,
    TRANSFORMERS,
    PYTORCH,
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Failure,
    judge=judge,
    fixes=FIXES,
    verify="at the longest prompt memory stays under 95 % of the device.",
    doc=__doc__,
    also=(
        Sign(("allocator_step",), ("memory-snapshot",), SPIKE_SQL, Spike, judge_spike),
        Sign(("memory_refusal",), ("oom-text",), REFUSED_SQL, Refused, judge_refused),
        Sign(("starved_start",), ("engine-log",), TRIAL_SQL, Trial, judge_trial),
        Sign(("level_spike",), ("nvidia-smi", "nvml"), LEVELS_SQL, Levels, judge_levels),
    ),
)
