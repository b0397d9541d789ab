-- model_config: what follows from the shape of a model: bytes of KV cache a token (all ranks together), parameters, bytes of weights. One row a
-- configuration. Sources: attention 2 x layers x KV heads x head size; MLA (DeepSeek-V2, 2.1) one latent a layer; gated feed-forward layers have
-- three matrices, those of GPT-2, OPT, BLOOM, Falcon and Phi two; a quantised weight carries about a sixteenth more for its scales.
CREATE TABLE model_config AS
WITH typed AS (
    SELECT *, CASE dtype WHEN 'float32' THEN 32.0 WHEN 'float64' THEN 64.0 ELSE 16.0 END AS dtype_bits,
        coalesce((SELECT max(told) FROM engine_choice WHERE setting = 'kv_dtype'), 'auto') AS kv_dtype,
        CASE WHEN regexp_matches(coalesce(architecture, ''), '^(GPT2|GPTNeoX|GPTJ|OPT|Bloom|Falcon|RWForCausal|Phi(For|MoE)|Starcoder|MPT)') THEN 2 ELSE 3 END AS matrices
    FROM model_shape
),
part AS (
    SELECT *,
        hidden_count * head_count * head_dim_count * 2 + CASE WHEN kv_latent_count IS NULL THEN 2 * hidden_count * kv_head_count * head_dim_count
            ELSE hidden_count * kv_latent_count END AS attention_params,
        matrices * hidden_count * coalesce(feed_forward_count, 4 * hidden_count) AS dense_params,
        coalesce(expert_count, 0) * matrices * hidden_count * coalesce(expert_feed_forward_count, feed_forward_count, 0)
            + coalesce(shared_expert_count, 0) * matrices * hidden_count * coalesce(expert_feed_forward_count, feed_forward_count, 0) AS expert_params,
        least(coalesce(expert_per_token_count, 0) + coalesce(shared_expert_count, 0), coalesce(expert_count, 0) + coalesce(shared_expert_count, 0))
            * matrices * hidden_count * coalesce(expert_feed_forward_count, feed_forward_count, 0) AS used_expert_params,
        CASE WHEN expert_count IS NULL THEN layer_count ELSE coalesce(dense_layer_count, 0) END AS dense_layers,
        coalesce(vocabulary_count, 0) * hidden_count * CASE WHEN coalesce(is_embedding_tied, false) THEN 1 ELSE 2 END AS embedding_params
    FROM typed
),
summed AS (
    SELECT *, layer_count * attention_params + dense_layers * dense_params + (layer_count - dense_layers) * expert_params AS layer_params,
        layer_count * attention_params + dense_layers * dense_params + (layer_count - dense_layers) * used_expert_params AS used_params
    FROM part
)
SELECT source_id, architecture, dtype, quantisation, layer_count, attention_layer_count, kv_head_count, head_dim_count, vocabulary_count,
    max_position_count, is_cache_used, attention, expert_count IS NOT NULL AS is_moe, dtype_bits / 8 AS element_bytes,
    try_cast(round(attention_layer_count * CASE WHEN kv_latent_count IS NOT NULL THEN kv_latent_count ELSE 2 * kv_head_count * head_dim_count END
        * CASE WHEN kv_dtype LIKE 'fp8%' OR kv_dtype LIKE 'int8%' THEN 1.0 ELSE dtype_bits / 8 END) AS BIGINT) AS kv_token_bytes,
    try_cast(round(layer_params + embedding_params) AS BIGINT) AS parameter_count,
    try_cast(round(used_params + embedding_params) AS BIGINT) AS used_parameter_count,
    try_cast(round(layer_params * coalesce(weight_bit_count * 1.0625, dtype_bits) / 8 + embedding_params * dtype_bits / 8) AS BIGINT) AS weight_bytes
FROM summed
ORDER BY source_id;
