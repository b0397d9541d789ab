"""What an inference engine says of itself: settings, figures, samples over time, events, metrics, benchmark tables."""

from __future__ import annotations

from sqlalchemy import Table

from doctor.case.schema.columns import flag, metadata, of_source, real, small, text_column, whole

engine_setting = Table(
    "engine_setting",
    metadata,
    of_source(),
    text_column("engine", "vllm, sglang, tensorrt-llm, tgi, lmdeploy, transformers, engine"),
    text_column("setting", "what it sets, in one word for all engines: see doctor.formats.engine_options"),
    text_column("spelled", "the engine's own name for it"),
    text_column("told", "as written; lower case, without quotes"),
    text_column("said_by", "log: what ran; command or file: what was asked for"),
    whole("line_id", "place in the text"),
    comment="Settings of inference engines; hosts, paths and keys are never kept",
)

engine_figure = Table(
    "engine_figure",
    metadata,
    of_source(),
    text_column("engine", "as in engine_setting"),
    small("replica_id", "data-parallel rank or engine index, where the line names it"),
    small("rank", "tensor-parallel rank, where the line names it"),
    whole("line_id", "place in the text"),
    whole("time_ns", "time of the line, ns since the epoch as if the clock were UTC; a year left out is 2000"),
    text_column(
        "figure",
        "total_memory, requested_memory, free_memory, weights, kv_memory, kv_needed, kv_tokens, kv_blocks, "
        "activation_peak, non_torch, graph_memory, graph_estimate, max_concurrency, max_model_len, graph_max_batch, "
        "graph_time, max_running, max_batched_tokens, context_len, draft_cost; cuda_total: as CUDA itself answers, "
        "believed_total: what somebody says that the engine counts with",
    ),
    whole("amount_bytes", "for memory"),
    real("amount_count", "for tokens, blocks, sequences"),
    real("amount_share", "for shares, 0 to 1"),
    whole("amount_ns", "for times"),
    comment="Figures that an engine logs once, while it starts",
)

engine_sample = Table(
    "engine_sample",
    metadata,
    of_source(),
    text_column("engine", "as in engine_setting"),
    small("replica_id", "data-parallel rank or engine index; NULL where the engine is alone"),
    whole("line_id", "place in the text"),
    whole("time_ns", "time of the line, as in engine_figure"),
    text_column("phase", "state: a regular line on both; prefill, decode: a line on one batch"),
    real("running_count", "requests in the batch"),
    real("waiting_count", "requests in the queue"),
    real("swapped_count", "requests whose KV cache lies in host memory"),
    real("kv_usage_share", "used share of the KV cache, 0 to 1"),
    real("prefix_hit_share", "share of prompt tokens found in the prefix cache, 0 to 1, as the engine counts it"),
    real("prompt_token_hz", "prompt tokens a second"),
    real("output_token_hz", "generated tokens a second"),
    real("new_sequence_count", "requests that begin in this prefill"),
    real("new_token_count", "prompt tokens computed in this batch"),
    real("cached_token_count", "prompt tokens of this batch taken from the prefix cache"),
    real("preemption_count", "requests that lost their blocks since the last line"),
    real("graph_share", "share of steps since the last line that replayed a CUDA graph, 0 to 1"),
    real("accept_length_count", "tokens that a step of the target model gives, its own included"),
    real("drafted_count", "tokens drafted since the last line"),
    real("accepted_count", "of these accepted"),
    whole("step_ns", "host time of the step"),
    whole("device_step_ns", "device time of the step"),
    comment="The state of an engine over time",
)

engine_event = Table(
    "engine_event",
    metadata,
    of_source(),
    text_column("engine", "as in engine_setting; NULL for lines of PyTorch itself"),
    small("replica_id", "as in engine_sample"),
    whole("line_id", "place in the text"),
    whole("time_ns", "time of the line, as in engine_figure"),
    text_column(
        "event",
        "preempted, retracted, graph_capture_start, graph_capture_end, serving, recompile_limit, recompiled, tf32_off, "
        "quantisation_slow, quantisation_forced, quantisation_fast, moe_default, fp8_weight_only, threads_reduced, "
        "eager, attention_fallback, attention_fused, length_over_kv, no_kv_room, free_too_small, grammar, offloading, "
        "slow_tokenizer, request_refused, prefix_cache_off, conversion_impossible, finished, all_reduce_plain, "
        "restarted",
    ),
    text_column("detail", "a word that the engine says: a method, a device, a backend"),
    real("amount_count", "requests, threads, sequences: what the line counts"),
    whole("amount_bytes", "what the line weighs"),
    comment="Things an engine says once or now and then",
)

metric = Table(
    "metric",
    metadata,
    of_source(),
    text_column("engine", "as in engine_setting"),
    small("replica_id", "label engine, dp_rank or the like"),
    small("scrape_id", "the first scrape of a text is 0"),
    whole("time_ns", "time of the scrape where the text gives one"),
    text_column("metric", "name without the engine's prefix and without _total"),
    text_column("reading_kind", "gauge, counter, bucket, sum, count"),
    real("bucket_le", "upper bound of a histogram's bucket, in the metric's unit"),
    text_column("detail", "the one label kept: position, finished_reason, mode"),
    real("reading", "the value, in the metric's unit"),
    comment="Prometheus metrics of engines",
)

bench_row = Table(
    "bench_row",
    metadata,
    of_source(),
    small("row_id", "place in the file, from 0"),
    text_column("tool", "table, vllm-serve, vllm-latency, vllm-throughput, sglang-serve, engine-bench, ..."),
    text_column("condition", "JSON of the columns in words: what else was varied"),
    real("batch_count", "sequences at a time, as asked"),
    real("concurrency_count", "requests at a time, as measured or as the client allowed"),
    real("request_rate_hz", "requests a second, as offered; NULL is as fast as possible"),
    real("tensor_parallel_count", "devices that share a layer"),
    real("pipeline_parallel_count", "stages"),
    real("data_parallel_count", "replicas"),
    real("device_count", "devices in all"),
    real("prompt_token_count", "prompt tokens of a request"),
    real("output_token_count", "generated tokens of a request"),
    real("completed_count", "requests done"),
    real("request_hz", "requests done a second"),
    real("output_token_hz", "generated tokens a second"),
    real("total_token_hz", "prompt and generated tokens a second"),
    whole("latency_ns", "time of a whole request or batch, mean or median"),
    whole("latency_p99_ns", "99th percentile"),
    whole("ttft_p50_ns", "time to first token, median (mean where no median is given)"),
    whole("ttft_p99_ns", "99th percentile"),
    whole("tpot_p50_ns", "time per output token, median (mean where no median is given)"),
    whole("tpot_p99_ns", "99th percentile"),
    whole("itl_p50_ns", "time between tokens, median (mean where no median is given)"),
    whole("itl_p99_ns", "99th percentile"),
    real("accept_length_count", "tokens that a step of the target model gives"),
    real("draft_token_count", "tokens drafted a step"),
    real("preemption_count", "requests that lost their blocks"),
    real("hit_share", "share of prompt tokens found in the prefix cache, 0 to 1"),
    real("shared_prefix_count", "prompt tokens that all requests begin with"),
    real("device_busy_share", "share of the time in which a device worked, 0 to 1"),
    real("client_cpu_share", "share of a core that the load generator took, 0 to 1"),
    real("late_share", "share of requests over their target, 0 to 1"),
    comment="Results of benchmarks, a row per run",
)

bench_count = Table(
    "bench_count",
    metadata,
    of_source(),
    small("row_id", "of the run in bench_row"),
    text_column("counted", "what the engine counted: pieces_per_step, kv_bytes_copied, ..."),
    real("reading", "the value, in the unit that its name says"),
    comment="What an engine counted in a benchmark, a row per figure",
)

model_shape = Table(
    "model_shape",
    metadata,
    of_source(),
    text_column("architecture", "class of the model"),
    real("layer_count", "layers"),
    real("attention_layer_count", "of these with a KV cache"),
    real("hidden_count", "width of the residual stream"),
    real("head_count", "query heads"),
    real("kv_head_count", "key and value heads"),
    real("head_dim_count", "elements of a head"),
    real("kv_latent_count", "elements of a compressed KV entry (MLA), its rotary part included; NULL without"),
    real("feed_forward_count", "width of a feed-forward layer"),
    real("expert_count", "routed experts; NULL in a dense model"),
    real("expert_per_token_count", "of these used for a token"),
    real("expert_feed_forward_count", "width of an expert"),
    real("shared_expert_count", "experts that every token uses"),
    real("dense_layer_count", "layers without experts in a model of experts"),
    real("vocabulary_count", "entries of the vocabulary"),
    real("max_position_count", "longest sequence"),
    flag("is_embedding_tied", "output layer and embedding are one"),
    text_column("dtype", "type of the weights as stored, such as bfloat16"),
    text_column("quantisation", "method of quantisation; NULL without"),
    real("weight_bit_count", "bits of a quantised weight"),
    flag("is_cache_used", "use_cache of the configuration"),
    text_column("attention", "attention implementation that the configuration asks for"),
    comment="Configuration of a model (config.json)",
)
