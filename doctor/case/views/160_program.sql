-- program: what the recorded program is, one row, as far as its work tells: `kind` is training, generation, encoder, vision or unknown, and the
-- other columns are what tells it. A backward pass and an optimizer have kernels, operators and annotations of their own. A language model that
-- writes token by token keeps keys and values: it writes into a cache, turns positions or joins tensors, keys and values, in every layer; or ranges,
-- frames and kernels name its decode steps. What attends without any of that passes over its input once, and so does what convolves.
-- `attention_count` is of attention kernels and, where there are none, of softmax kernels from eight on; `cache_count` of tensors that are joined or copied into a
-- place; what writes a cache or turns positions does it with two. Writes at a position are of a cache even where prompts, which fill theirs with plain
-- copies, are half of the passes.
CREATE TABLE program AS
WITH work AS (
    SELECT name_id, family, count(*) AS op_count, sum(end_ns - start_ns) AS device_ns
    FROM device_op, steady_window WHERE kind = 'kernel' AND start_ns >= from_ns AND start_ns < until_ns
    GROUP BY name_id, family
),
named AS (
    SELECT work.*, name, coalesce(lower(name), '') AS word FROM work LEFT JOIN kernel_name USING (name_id)
),
kernels AS (
    SELECT sum(device_ns) AS all_ns,
        coalesce(sum(device_ns) FILTER (regexp_matches(word, 'backward|(^|[^a-z])bwd|_bwd|bn_bw_|dgrad_engine|wgrad|grad_input|multi_tensor_apply|fused_?adam|fused_?sgd')), 0) AS backward_ns,
        coalesce(sum(device_ns) FILTER (regexp_matches(word, 'conv(olve|_?depthwise|2d|3d)?[^a-z]|implicit_convolve|cudnn.*(fprop|dgrad)|xmma_fprop|winograd|im2col|miopen|igemm_')
            AND family <> 'attention' AND NOT regexp_matches(word, 'convert|causal_conv')), 0) AS convolution_ns,
        coalesce(sum(op_count) FILTER (family = 'attention'), 0) AS attention_count,
        coalesce(sum(op_count) FILTER (family = 'softmax'), 0) AS softmax_count,
        count(*) FILTER (family = 'moe') AS moe_count,  -- its routers have a softmax too
        coalesce(sum(op_count * if(family IN ('kv_cache', 'rope'), 2, 1)) FILTER (family IN ('kv_cache', 'rope', 'concat') OR contains(word, 'index_copy')), 0)
            AS cache_count,
        coalesce(sum(op_count) FILTER (family = 'kv_cache' OR contains(word, 'index_copy')), 0) AS written_count,
        min(name) FILTER (regexp_matches(word, '(^|_|batch)(decode|prefill)(_|with|kernel)|paged_?attention')) AS decode_kernel
    FROM named
),
said AS (
    SELECT text, regexp_matches(lower(text), '^autograd::engine::evaluate_function: .*backward|^optimizer\.(step|zero_grad)|^[# ]*backward[# ]*$|run_backward|^aten::.*_backward'
            || '|training_step') AS is_training,
        regexp_matches(lower(text), '^(decode|prefill)($|[^a-z])|decode_?step|generate_token|next_token|forward_decode|(^|/)transformers/generation/|(^|/)vllm/|(^|/)sglang/|(^|/)tensorrt_llm/'
            || '|(^|[^a-z_])vllm::|sgl_kernel') AS is_generation
    FROM (SELECT DISTINCT name_id FROM nvtx_range UNION SELECT DISTINCT name_id FROM host_op) JOIN text ON text_id = name_id
    WHERE is_training OR is_generation
),
told AS (
    SELECT min(text) FILTER (is_training) AS training_name, min(text) FILTER (is_generation) AS generation_name FROM said
),
weighed AS (
    SELECT coalesce(backward_ns / nullif(all_ns, 0), 0) AS backward_share, coalesce(convolution_ns / nullif(all_ns, 0), 0) AS convolution_share,
        if(attention_count > 0, attention_count, if(moe_count > 0 OR softmax_count < 8, 0, softmax_count))::BIGINT AS attention_count, cache_count::BIGINT AS cache_count, written_count, training_name, coalesce(generation_name, decode_kernel) AS generation_name
    FROM kernels, told
)
SELECT CASE
        WHEN backward_share >= 0.005 OR training_name IS NOT NULL THEN 'training'
        WHEN generation_name IS NOT NULL OR (
            attention_count > 0 AND (cache_count >= 1.9 * attention_count OR written_count >= 0.5 * attention_count) AND convolution_share < 0.05) THEN 'generation'
        WHEN convolution_share >= 0.2 THEN 'vision'
        WHEN attention_count >= 3 THEN 'encoder'
        ELSE 'unknown'
    END AS kind,
    backward_share, convolution_share, attention_count, cache_count, training_name, generation_name
FROM weighed, steady_window;
