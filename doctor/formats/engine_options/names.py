"""Names of options, per engine, and the common word for each; `!` in front of it means the opposite."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MOST_VALUE_CHARACTERS = 1200

_VLLM = {
    "device": "device",
    "max_model_len": "model_len",
    "max_seq_len": "model_len",
    "max_num_seqs": "running_limit",
    "max_num_batched_tokens": "batched_tokens",
    "long_prefill_token_threshold": "chunk_tokens",
    "enable_chunked_prefill": "chunked_prefill",
    "chunked_prefill_enabled": "chunked_prefill",
    "gpu_memory_utilization": "memory_share",
    "kv_cache_memory_bytes": "kv_bytes",
    "kv_cache_dtype": "kv_dtype",
    "block_size": "block_tokens",
    "dtype": "dtype",
    "quantization": "quantisation",
    "enforce_eager": "eager",
    "max_cudagraph_capture_size": "graph_max_batch",
    "compilation_config.max_cudagraph_capture_size": "graph_max_batch",
    "compilation_config.max_capture_size": "graph_max_batch",
    "cudagraph_capture_sizes": "graph_sizes",
    "cuda_graph_sizes": "graph_sizes",
    "compilation_config.cudagraph_capture_sizes": "graph_sizes",
    "compilation_config.cudagraph_mode": "graph_mode",
    "cudagraph_mode": "graph_mode",
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "enable_expert_parallel": "expert_parallel",
    "enable_eplb": "expert_balance",
    "enable_prefix_caching": "prefix_cache",
    "scheduling_policy": "policy",
    "async_scheduling": "async_scheduling",
    "api_server_count": "api_servers",
    "stream_interval": "stream_interval",
    "num_scheduler_steps": "scheduler_steps",
    "speculative_config.method": "spec_method",
    "speculative_config.num_speculative_tokens": "spec_tokens",
    "speculative_config.num_spec_tokens": "spec_tokens",
    "num_speculative_tokens": "spec_tokens",
    "attention_backend": "attention",
    "attention_config.backend": "attention",
    "guided_decoding_backend": "grammar_backend",
    "decoding_config.guided_decoding_backend": "grammar_backend",
    "structured_outputs_config.backend": "grammar_backend",
    "cpu_offload_gb": "offload_gib",
    "swap_space": "swap_gib",
    "numa_bind": "numa_bind",
    "disable_custom_all_reduce": "custom_all_reduce_off",
    "distributed_executor_backend": "executor",
    "disable_log_stats": "stats_off",
    "max_logprobs": "logprobs_limit",
}
_SGLANG = {
    "device": "device",
    "context_length": "model_len",
    "max_running_requests": "running_limit",
    "max_prefill_tokens": "batched_tokens",
    "chunked_prefill_size": "chunk_tokens",
    "enable_mixed_chunk": "mixed_chunk",
    "mem_fraction_static": "memory_share",
    "max_total_tokens": "kv_tokens",
    "kv_cache_dtype": "kv_dtype",
    "page_size": "block_tokens",
    "dtype": "dtype",
    "quantization": "quantisation",
    "disable_cuda_graph": "eager",
    "cuda_graph_max_bs": "graph_max_batch",
    "cuda_graph_max_bs_decode": "graph_max_batch",
    "cuda_graph_bs": "graph_sizes",
    "cuda_graph_bs_decode": "graph_sizes",
    "tp": "tensor_parallel",
    "tp_size": "tensor_parallel",
    "tensor_parallel_size": "tensor_parallel",
    "pp_size": "pipeline_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "dp": "data_parallel",
    "dp_size": "data_parallel",
    "data_parallel_size": "data_parallel",
    "ep_size": "expert_parallel",
    "enable_eplb": "expert_balance",
    "enable_dp_attention": "dp_attention",
    "disable_radix_cache": "!prefix_cache",
    "schedule_policy": "policy",
    "enable_priority_scheduling": "priority",
    "schedule_conservativeness": "conservativeness",
    "disable_overlap_schedule": "!async_scheduling",
    "tokenizer_worker_num": "api_servers",
    "stream_interval": "stream_interval",
    "speculative_algorithm": "spec_method",
    "speculative_num_draft_tokens": "spec_tokens",
    "speculative_num_steps": "spec_steps",
    "speculative_eagle_topk": "spec_branches",
    "attention_backend": "attention",
    "decode_attention_backend": "attention",
    "grammar_backend": "grammar_backend",
    "cpu_offload_gb": "offload_gib",
    "enable_torch_compile": "compiled",
    "torch_compile_max_bs": "compiled_max_batch",
    "numa_node": "numa_bind",
    "disable_custom_all_reduce": "custom_all_reduce_off",
    "load_balance_method": "balance",
    "enable_hierarchical_cache": "host_cache",
}
_TENSORRT = {
    "max_seq_len": "model_len",
    "max_batch_size": "running_limit",
    "max_num_tokens": "batched_tokens",
    "enable_chunked_prefill": "chunked_prefill",
    "enable_chunked_context": "chunked_prefill",
    "free_gpu_memory_fraction": "memory_share",
    "kv_cache_free_gpu_memory_fraction": "memory_share",
    "kv_cache_free_gpu_mem_fraction": "memory_share",
    "kv_cache_config.free_gpu_memory_fraction": "memory_share",
    "kv_cache_config.max_tokens": "kv_tokens",
    "kv_cache_config.dtype": "kv_dtype",
    "kv_cache_config.enable_block_reuse": "prefix_cache",
    "enable_block_reuse": "prefix_cache",
    "enable_kv_cache_reuse": "prefix_cache",
    "kv_cache_config.tokens_per_block": "block_tokens",
    "tokens_per_block": "block_tokens",
    "kv_cache_config.host_cache_size": "host_cache",
    "paged_kv_cache": "paged_cache",
    "kv_cache_type": "cache_kind",
    "dtype": "dtype",
    "quant_config.quant_algo": "quantisation",
    "quantization.quant_algo": "quantisation",
    "quant_algo": "quantisation",
    "cuda_graph_config": "graphs",
    "cuda_graph_config.max_batch_size": "graph_max_batch",
    "cuda_graph_config.batch_sizes": "graph_sizes",
    "use_cuda_graph": "!eager",
    "tp_size": "tensor_parallel",
    "tensor_parallel_size": "tensor_parallel",
    "pp_size": "pipeline_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "ep_size": "expert_parallel",
    "moe_expert_parallel_size": "expert_parallel",
    "enable_attention_dp": "dp_attention",
    "capacity_scheduler_policy": "capacity_policy",
    "scheduler_config.capacity_scheduler_policy": "capacity_policy",
    "batch_scheduler_policy": "capacity_policy",
    "disable_overlap_scheduler": "!async_scheduling",
    "stream_interval": "stream_interval",
    "speculative_config.decoding_type": "spec_method",
    "speculative_config.max_draft_len": "spec_tokens",
    "attn_backend": "attention",
    "guided_decoding_backend": "grammar_backend",
}
_TGI = {
    "max_total_tokens": "model_len",
    "max_batch_size": "running_limit",
    "max_batch_prefill_tokens": "batched_tokens",
    "max_batch_total_tokens": "kv_tokens",
    "cuda_memory_fraction": "memory_share",
    "kv_cache_dtype": "kv_dtype",
    "dtype": "dtype",
    "quantize": "quantisation",
    "cuda_graphs": "graph_sizes",
    "num_shard": "tensor_parallel",
    "speculate": "spec_tokens",
    "waiting_served_ratio": "waiting_ratio",
    "disable_grammar_support": "grammar_off",
    "max_concurrent_requests": "queue_limit",
}
_LMDEPLOY = {
    "session_len": "model_len",
    "instance_num": "instances",
    "max_batch_size": "running_limit",
    "max_prefill_token_num": "batched_tokens",
    "cache_max_entry_count": "memory_share",
    "quant_policy": "kv_quantisation",
    "cache_block_seq_len": "block_tokens",
    "block_size": "block_tokens",
    "dtype": "dtype",
    "model_format": "quantisation",
    "eager_mode": "eager",
    "tp": "tensor_parallel",
    "dp": "data_parallel",
    "ep": "expert_parallel",
    "enable_prefix_caching": "prefix_cache",
    "num_tokens_per_iter": "chunk_tokens",
}
_TRANSFORMERS = {
    "dtype": "dtype",
    "torch_dtype": "dtype",
    "attn_implementation": "attention",
    "use_cache": "cache",
    "cache_implementation": "cache_kind",
    "load_in_8bit": "bnb_8bit",
    "load_in_4bit": "bnb_4bit",
    "max_memory": "memory_limits",
    "device_map": "device_map",
    "output_attentions": "output_attentions",
    "per_device_eval_batch_size": "running_limit",
    "batch_size": "running_limit",
}
_ENGINE = {
    "device": "device",
    "dtype": "dtype",
    "quantization": "quantisation",
    "weight_offload": "offload_share",
    "attention": "attention",
    "kv": "kv_layout",
    "kv_dtype": "kv_dtype",
    "block_size": "block_tokens",
    "num_blocks": "kv_blocks",
    "memory_share": "memory_share",
    "prefix_caching": "prefix_cache",
    "max_model_len": "model_len",
    "batching": "batching",
    "policy": "policy",
    "max_num_seqs": "running_limit",
    "max_num_batched_tokens": "batched_tokens",
    "micro_batch_size": "micro_batch",
    "cuda_graphs": "!eager",
    "overlap": "async_scheduling",
    "speculate": "spec_method",
    "num_draft_tokens": "spec_tokens",
    "condition": "condition",
}
_ENVIRONMENT = {
    "omp_num_threads": "threads",
    "vllm_attention_backend": "attention",
    "vllm_float32_matmul_precision": "matmul_precision",
    "vllm_structured_output_max_compile_workers": "grammar_workers",
    "vllm_use_v1": "v1",
    "vllm_test_force_fp8_marlin": "fp8_marlin_forced",
    "sglang_force_fp8_marlin": "fp8_marlin_forced",
    "pytorch_cuda_alloc_conf": "allocator",
    "pytorch_alloc_conf": "allocator",
    "cuda_launch_blocking": "launch_blocking",
    "nvidia_tf32_override": "tf32_override",
    "cuda_visible_devices": "visible_devices",
    "nccl_p2p_disable": "p2p_off",
    "cuda_graphs": "graph_sizes",
}
ENGINES: dict[str, dict[str, str]] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "tensorrt-llm": _TENSORRT,
    "tgi": _TGI,
    "lmdeploy": _LMDEPLOY,
    "transformers": _TRANSFORMERS,
    "engine": _ENGINE,
}
_SHORT = {
    ("vllm", "tp"): "tensor_parallel_size",
    ("vllm", "pp"): "pipeline_parallel_size",
    ("vllm", "dp"): "data_parallel_size",
    ("vllm", "q"): "quantization",
    ("vllm", "o"): "",
}
_TRUE, _FALSE = {"true", "1", "yes", "on", ""}, {"false", "0", "no", "off"}
_PLAIN_VALUE = re.compile(r"[\w.,:+\- %\[\]{}()]*\Z", re.ASCII)
_FLAGS = {
    "async_scheduling", "cache", "chunked_prefill", "compiled", "dp_attention", "eager", "expert_balance",
    "mixed_chunk", "numa_bind", "prefix_cache", "priority", "custom_all_reduce_off", "stats_off",
    "bnb_4bit", "bnb_8bit",
}  # fmt: skip


class Setting(NamedTuple):
    """One setting.

    Attributes:
        setting: the common word.
        spelled: the engine's own name.
        told: the value in lower case, without quotes.
    """

    setting: str
    spelled: str
    told: str

    def row_of_command(self, engine: str, line: int) -> dict[str, str | int | None]:
        """The row of `engine_setting` where it stood on a command line or in a call, in this line of the text."""
        return {
            "engine": engine,
            "setting": self.setting,
            "spelled": self.spelled,
            "told": self.told,
            "said_by": "command",
            "line_id": line,
        }


def setting_of(engine: str, name: str, value: str) -> Setting | None:
    """What an option sets; None where it is not one of those that are kept, or sets nothing (`None`).

    Args:
        engine: one of `ENGINES`.
        name: `max_num_seqs`, `--max-num-seqs`, or nested: `kv_cache_config.dtype`.
        value: as written; empty for a flag.
    """
    spelled = name.strip().lstrip("-").replace("-", "_").lower()
    is_denied = spelled.startswith("no_") and spelled not in ENGINES[engine]
    spelled = spelled.removeprefix("no_") if is_denied else spelled
    spelled = _SHORT.get((engine, spelled), spelled)
    word = ENGINES[engine].get(spelled) or _ENVIRONMENT.get(spelled)
    told = _plain(value)
    if word is None or told is None or len(told) > MOST_VALUE_CHARACTERS:
        return None
    if word.lstrip("!") in _FLAGS and told not in _TRUE | _FALSE:
        told = "true"  # the word behind a flag is no value of it
    if is_denied or word.startswith("!"):
        told = _denied(told)
    elif not told:
        told = "true"
    return Setting(word.lstrip("!"), spelled, told)


def is_undecided(setting: str, value: str) -> bool:
    """Tell whether a setting that is on or off was given a word that says neither."""
    told = _plain(value) or ""
    return setting in _FLAGS and told.isalpha() and told not in _TRUE | _FALSE


def settings_of(engine: str, options: Iterable[tuple[str, str]]) -> Iterator[Setting]:
    """The kept settings among options."""
    for name, value in options:
        if (setting := setting_of(engine, name, value)) is not None:
            yield setting


def _plain(value: str) -> str | None:
    told = value.strip().strip("\"'").lower().removeprefix("torch.").replace("'", "").replace('"', "")
    if told.startswith("<") and ":" in told:  # <CUDAGraphMode.PIECEWISE: 1>
        told = told.strip("<>").partition(":")[0].partition(".")[2]
    if told in {"none", "null", "unset"} or not _PLAIN_VALUE.match(told):
        return None
    return {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32"}.get(
        told, told
    )


def _denied(told: str) -> str:
    if told in _TRUE:
        return "false"
    return "true" if told in _FALSE else told
