"""Documented problems that this engine can be made to have, and what cures each of them.

A condition is nothing but options: it selects implementations that exist, and sick and cured run differ in those
options alone. `proof` names what differs between the two, as a number that the engine counts or reports.
"""

from dataclasses import dataclass
from typing import Any

from engine.config import EngineConfig
from engine.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Condition:
    """One problem.

    Attributes:
        name: as it is called on the command line.
        problem: what goes wrong, in one line.
        sick: options that make it so.
        cure: options in their place that heal it.
        proof: what to look at in the output of `bench`, and how it differs.
        needs: what the machine or the model must have for the difference to show; empty if nothing.
    """

    name: str
    problem: str
    sick: dict[str, Any]
    cure: dict[str, Any]
    proof: str
    needs: str = ""

    def apply(self, config: EngineConfig, is_cured: bool) -> EngineConfig:
        """The configuration with this problem, or with its cure."""
        return config.with_options(**(self.cure if is_cured else self.sick))


_ALL = (
    Condition(
        "unpaged-kv",
        "the KV cache of each request grows by concatenation: every step copies all of it",
        sick={"kv": "concat"},
        cure={"kv": "paged"},
        proof="kv_bytes_copied is above 0 and grows with the square of the length",
    ),
    Condition(
        "contiguous-kv",
        "the KV cache of each request is reserved at full length",
        sick={"kv": "contiguous"},
        cure={"kv": "paged"},
        proof="kv_utilisation (slots filled / slots allocated) is far below that of pages",
    ),
    Condition(
        "micro-batch-small",
        "a step is cut into forward passes of one sequence each",
        sick={"micro_batch_size": 1},
        cure={"micro_batch_size": None},
        proof="pieces_per_step is the number of sequences instead of 1",
    ),
    Condition(
        "sync-every-layer",
        "the host waits for the device after every layer",
        sick={"layer_boundary": "synchronize", "cuda_graphs": False},
        cure={"layer_boundary": "free", "cuda_graphs": False},
        proof="layer_syncs is layers x pieces instead of 0",
    ),
    Condition(
        "no-cuda-graphs",
        "decode launches its kernels one by one",
        sick={"cuda_graphs": False},
        cure={"cuda_graphs": None},
        proof="graph_replays is 0 instead of the number of decode pieces",
        needs="a GPU",
    ),
    Condition(
        "pageable-copies",
        "weights kept on the host are copied from pageable memory, one layer after the other",
        sick={"weight_offload": 0.5, "weight_copies": "blocking", "cuda_graphs": False},
        cure={"weight_offload": 0.5, "weight_copies": "prefetch", "cuda_graphs": False},
        proof="pageable_copies is layers x passes instead of 0",
        needs="a GPU",
    ),
    Condition(
        "pageable-staging",
        "the inputs of a step are copied from pageable memory, array by array",
        sick={"staging": "pageable", "cuda_graphs": False},
        cure={"staging": "pinned", "cuda_graphs": False},
        proof="pageable_copies is about 10 a step instead of 0",
        needs="a GPU",
    ),
    Condition(
        "blocking-step-wait",
        "nothing is scheduled before the whole device is idle",
        sick={"step_wait": "device", "overlap": False},
        cure={"step_wait": "event", "overlap": True},
        proof="steps_overlapped is 0 instead of nearly all steps",
    ),
    Condition(
        "static-batching",
        "a batch is full once and then shrinks until its longest request is done",
        sick={"batching": "static"},
        cure={"batching": "continuous"},
        proof="more steps for the same tokens",
    ),
    Condition(
        "single-request",
        "one request at a time",
        sick={"batching": "single"},
        cure={"batching": "continuous"},
        proof="decode_tokens_per_step is at most 1",
    ),
    Condition(
        "eager-attention",
        "attention writes all its scores to memory",
        sick={"attention": "eager", "cuda_graphs": False},
        cure={"attention": "auto", "cuda_graphs": False},
        proof="peak memory grows with the square of the prompt; other kernels in the trace",
    ),
    Condition(
        "fp32",
        "weights and activations take four bytes where two are enough",
        sick={"dtype": "float32"},
        cure={"dtype": "bfloat16"},
        proof="weight_bytes is twice as large",
    ),
    Condition(
        "empty-cache-every-step",
        "cached memory is given back to the driver after every step, and asked for again",
        sick={"after_step": "empty-cache"},
        cure={"after_step": "keep-cache"},
        proof="cache_flushes is the number of steps instead of 0",
        needs="a GPU",
    ),
    Condition(
        "slow-scheduler",
        "the scheduler checks every block of the pool between two steps",
        sick={"bookkeeping": "audit", "overlap": False},
        cure={"bookkeeping": "lean", "overlap": False},
        proof="audits is the number of steps instead of 0; schedule_ns grows",
    ),
    Condition(
        "low-acceptance-draft",
        "long drafts are proposed on thin evidence, and nearly all are rejected",
        sick={"speculate": "ngram", "ngram_min": 1, "num_draft_tokens": 16, "overlap": False},
        cure={"speculate": None, "overlap": False},
        proof="accepted / drafted is small, decode_tokens many times the tokens kept",
    ),
    Condition(
        "slow-gating",
        "the experts of a token are chosen in rounds of softmax, maximum and mask",
        sick={"moe_gating": "rounds"},
        cure={"moe_gating": "fused"},
        proof="gating_rounds is experts per token x layers x passes instead of 0; moe_routing takes longer",
        needs="a model with experts",
    ),
    Condition(
        "moe-expert-loop",
        "experts are visited one after another from Python",
        sick={"moe_routing": "loop", "cuda_graphs": False},
        cure={"moe_routing": "grouped", "cuda_graphs": False},
        proof="expert_visits is experts x layers x passes instead of 0",
        needs="a model with experts",
    ),
    Condition(
        "prefix-cache-off",
        "equal prompt beginnings are computed again for each request",
        sick={"prefix_caching": False},
        cure={"prefix_caching": True},
        proof="prefix_hit_tokens is 0",
        needs="prompts with a common beginning",
    ),
    Condition(
        "preemption-thrash",
        "requests are admitted by the blocks that are free now, and lose them again",
        sick={"admission": "free-blocks"},
        cure={"admission": "projected-peak"},
        proof="preemptions is above 0, and prefill_tokens are computed twice",
        needs="a KV pool smaller than the load (num_blocks)",
    ),
    Condition(
        "prefill-blocks-decode",
        "whole prompts run in one step while others wait for their next token",
        sick={"max_num_batched_tokens": 65536},
        cure={"max_num_batched_tokens": 256},
        proof="step_tokens_peak is that of whole prompts; the 99th percentile of itl_s",
        needs="long prompts that arrive while others generate",
    ),
)

CONDITIONS = {condition.name: condition for condition in _ALL}


def find_condition(name: str) -> Condition:
    """The condition of this name.

    Raises:
        ConfigError: there is none; the message lists those there are.
    """
    if name not in CONDITIONS:
        raise ConfigError(f"unknown condition {name!r}; known: {', '.join(sorted(CONDITIONS))}")
    return CONDITIONS[name]
