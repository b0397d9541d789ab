"""Every option of the engine: frozen, checked when made, and free of torch."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from engine.errors import ConfigError

Batching = Literal["single", "static", "dynamic", "continuous"]
KvLayout = Literal["paged", "contiguous", "concat"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
MAX_NGRAM = 4


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine is built and run.

    Attributes:
        model: folder of a Hugging Face checkpoint.
        device: "auto" takes the GPU where there is one.
        dtype: type of weights and activations; "auto" is the checkpoint's.
        quantization: how weights are stored on the device.
        weight_offload: share of the layers' weights kept in host memory, in [0, 1].
        weight_copies: "prefetch" brings the next layer from pinned memory on a side stream, "blocking" waits for a
            pageable copy of each layer.
        attention: backend; "auto" is `triton_paged` on a GPU and `torch_ref` elsewhere.
        moe_routing: how tokens reach experts; "loop" visits experts one after another, "grouped" sorts once.
        moe_gating: how experts are chosen; "rounds" takes one after the other, "fused" all at once.
        kv: layout of the KV cache.
        kv_dtype: type of the KV cache; "auto" is the model's.
        block_size: tokens in a KV block (paged layout).
        num_blocks: blocks in the pool; None sizes it by memory.
        memory_share: share of the device's memory to use when `num_blocks` is None, in (0, 1].
        host_blocks: blocks of host memory for preempted requests; 0 has none.
        cold_copies: blocks of the prefix cache that are copied to the host in a step at most, so that they are found
            there once the device has given them away; 0 keeps none. Needs `host_blocks`.
        kv_copies: host memory of offloaded KV, "pinned" (asynchronous) or "pageable".
        prefix_caching: reuse the KV of equal prompt beginnings.
        max_model_len: prompt and output together, tokens; None is the model's own limit.
        batching: policy of the scheduler.
        policy: order of waiting requests.
        admission: "projected-peak" admits by the fullest moment to come, "free-blocks" by what is free now,
            "full-length" by the longest possible answers.
        preemption: how a request that loses its blocks gets them back.
        max_num_seqs: requests in a step at most.
        max_num_batched_tokens: tokens in a step at most; longer prompts are cut into chunks.
        batch_window_s: how long dynamic batching waits for more requests, seconds.
        micro_batch_size: sequences in one forward pass; None is the whole batch.
        cuda_graphs: replay recorded decode steps; unset does so wherever a step can be recorded.
        max_cudagraph_capture_size: tokens of the largest step with prompts that replays a recorded graph (of the next
            of many sizes); larger ones launch their kernels one by one, and 0 has all of them do so. Without effect
            where `cuda_graphs` is off.
        overlap: schedule step n+1 while step n runs; unset does so on a GPU.
        step_wait: "event" waits for the asynchronous copy of a step's tokens, "device" waits for the whole device.
        staging: host memory of the step's inputs, "pinned" or "pageable".
        layer_boundary: "synchronize" waits for the device after every layer.
        after_step: "empty-cache" gives cached memory back to the driver after every step.
        bookkeeping: "audit" checks every block of the pool in every step.
        speculate: None, "ngram" or "draft:FOLDER".
        num_draft_tokens: tokens proposed for each request and step.
        ngram_min: last tokens of a request that must have occurred before, for n-gram drafts; in [1, 4].
        step_retries: how often a failed step is tried again before its requests end with an error.
        seed: of the seeds drawn for requests that name none.
    """

    model: str
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Dtype = "auto"
    quantization: Literal["none", "fp8", "int8", "int4"] = "none"
    weight_offload: float = 0.0
    weight_copies: Literal["prefetch", "blocking"] = "prefetch"
    attention: Literal["auto", "torch_ref", "eager", "varlen", "triton_paged"] = "auto"
    moe_routing: Literal["grouped", "loop"] = "grouped"
    moe_gating: Literal["fused", "rounds"] = "fused"
    kv: KvLayout = "paged"
    kv_dtype: Literal["auto", "fp8"] = "auto"
    block_size: int = 16
    num_blocks: int | None = None
    memory_share: float = 0.9
    host_blocks: int = 0
    cold_copies: int = 0
    kv_copies: Literal["pinned", "pageable"] = "pinned"
    prefix_caching: bool = True
    max_model_len: int | None = None
    batching: Batching = "continuous"
    policy: Literal["fcfs", "deadline"] = "fcfs"
    admission: Literal["projected-peak", "free-blocks", "full-length"] = "projected-peak"
    preemption: Literal["recompute", "swap"] = "recompute"
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    batch_window_s: float = 0.01
    micro_batch_size: int | None = None
    cuda_graphs: bool | None = None
    max_cudagraph_capture_size: int = 2048
    overlap: bool | None = None
    step_wait: Literal["event", "device"] = "event"
    staging: Literal["pinned", "pageable"] = "pinned"
    layer_boundary: Literal["free", "synchronize"] = "free"
    after_step: Literal["keep-cache", "empty-cache"] = "keep-cache"
    bookkeeping: Literal["lean", "audit"] = "lean"
    speculate: str | None = None
    num_draft_tokens: int = 4
    ngram_min: int = 2
    step_retries: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every option, then those that depend on each other.

        Raises:
            ConfigError: a value is out of range, of the wrong type, or contradicts another one.
        """
        hints = get_type_hints(EngineConfig)
        for field in fields(self):
            _check_type(field.name, getattr(self, field.name), hints[field.name])
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, not {value}")
        self._check_combinations()

    @property
    def can_record_graphs(self) -> bool:
        """Whether no option needs the host in the middle of a step."""
        return (
            self.attention in ("auto", "triton_paged")
            and self.kv != "concat"
            and self.weight_offload == 0
            and self.staging == "pinned"
            and self.layer_boundary == "free"
            and self.moe_routing == "grouped"
        )

    @property
    def mixed_graph_tokens(self) -> int:
        """Tokens of the largest step with prompts for which a graph is wanted; 0 where none is."""
        if self.cuda_graphs is False or not self.can_record_graphs:
            return 0
        return min(self.max_cudagraph_capture_size, self.max_num_batched_tokens)

    def _check_combinations(self) -> None:
        _require(
            not self.cuda_graphs or (self.can_record_graphs and self.device != "cpu"),
            "cuda_graphs needs a GPU, attention=triton_paged, blocks (kv=paged or contiguous), weights on the device, "
            "pinned staging, grouped experts and no wait in a layer",
        )
        _require(0 < self.memory_share <= 1, f"memory_share must be in (0, 1], not {self.memory_share}")
        _require(0 <= self.weight_offload <= 1, f"weight_offload must be in [0, 1], not {self.weight_offload}")
        _require(
            self.speculate is None or self.speculate == "ngram" or self.speculate.startswith("draft:"),
            f"speculate must be ngram or draft:FOLDER, not {self.speculate!r}",
        )
        _require(self.ngram_min <= MAX_NGRAM, f"ngram_min must be at most {MAX_NGRAM}, not {self.ngram_min}")
        _require(self.preemption != "swap" or self.host_blocks > 0, "preemption=swap needs host_blocks above 0")
        _require(self.preemption != "swap" or self.kv == "paged", "preemption=swap needs kv=paged")
        _require(
            self.cold_copies == 0 or (self.host_blocks > 0 and self.kv == "paged" and self.prefix_caching),
            "cold_copies needs host_blocks above 0, kv=paged and prefix_caching",
        )
        _require(
            self.speculate is None or not self.overlap,
            "speculate needs the tokens of a step before the next is scheduled: overlap must be off",
        )

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> "EngineConfig":
        """Build from named options, as they come from a command line or a file.

        Raises:
            ConfigError: an option is unknown, or its value is unusable.
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise ConfigError(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(known))}")
        if "model" not in options:
            raise ConfigError("the option model is missing: name the folder of a checkpoint")
        return cls(**options)

    def with_options(self, **options: Any) -> "EngineConfig":
        """The same configuration with some options replaced.

        Raises:
            ConfigError: an option is unknown, or its value is unusable.
        """
        unknown = sorted(set(options) - {field.name for field in fields(self)})
        if unknown:
            raise ConfigError(f"unknown option {unknown[0]!r}")
        return replace(self, **options)


_LOWEST = {
    "block_size": 1,
    "num_blocks": 1,
    "host_blocks": 0,
    "cold_copies": 0,
    "max_model_len": 1,
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "batch_window_s": 0,
    "micro_batch_size": 1,
    "max_cudagraph_capture_size": 0,
    "num_draft_tokens": 1,
    "ngram_min": 1,
    "step_retries": 0,
    "seed": 0,
}


def _require(is_good: bool, message: str) -> None:
    if not is_good:
        raise ConfigError(message)


def _check_type(name: str, value: object, hint: Any) -> None:
    """Raise ConfigError unless the value fits the annotation of its field."""
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        _require(value in allowed, f"{name} must be one of {', '.join(map(str, allowed))}, not {value!r}")
        return
    kinds = get_args(hint) or (hint,)
    is_bool = isinstance(value, bool)
    fits = bool in kinds if is_bool else isinstance(value, tuple(kinds)) or (float in kinds and isinstance(value, int))
    wanted = " or ".join("none" if kind is type(None) else kind.__name__ for kind in kinds)
    _require(fits, f"{name} must be {wanted}, not {value!r}")
