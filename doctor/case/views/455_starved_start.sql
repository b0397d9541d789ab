-- starved_start: the start of an engine that was left nothing for its KV cache, by its own word or its own figure; one row, or none. With the parts
-- of its budget, as far as they were logged or follow from the model, and `cause`: shared (a table names others), race (two engines were sized
-- at once), share (room was left, and the pool wanted more), weights (four fifths of the budget), outside (memory that is not PyTorch's),
-- activation (15 % of the device for the trial run), budget (none of them stands out, or nobody says).
CREATE TABLE starved_start AS
WITH sized AS (  -- the last size that each log tells: a start that failed before it is history
    SELECT source_id, arg_max(amount_bytes, line_id) AS kv_bytes, max(line_id) AS line_id FROM engine_figure WHERE figure = 'kv_memory' GROUP BY source_id
),
refused AS (
    SELECT count(*) AS refusal_count, max(framework) AS framework, min(free_bytes) AS free_bytes, max(card_bytes) AS card_bytes,
        bool_or(is_shared) AS is_shared
    FROM refusal WHERE refusal = 'no_kv_room' AND NOT EXISTS (SELECT 1 FROM sized JOIN source ON source.source_id = sized.source_id
        JOIN source AS told ON told.source_id = refusal.source_id AND told.path = source.path WHERE sized.line_id > refusal.line_id AND kv_bytes > 0)
),
figured AS (
    SELECT max(engine) FILTER (sized.kv_bytes <= 0 OR figure = 'kv_blocks' AND amount_count = 0) AS starved_engine,
        min(sized.kv_bytes) FILTER (sized.kv_bytes <= 0) AS kv_bytes,
        max(amount_bytes) FILTER (figure = 'weights') AS weight_bytes, max(amount_bytes) FILTER (figure = 'activation_peak') AS activation_bytes,
        max(amount_bytes) FILTER (figure = 'non_torch') AS non_torch_bytes,
        coalesce(max(amount_bytes) FILTER (figure = 'total_memory'), max(amount_bytes) FILTER (figure = 'free_at_start'),
            max(amount_bytes) FILTER (figure = 'weights') + max(amount_bytes) FILTER (figure = 'free_after_load')) AS total_bytes,
        max(amount_bytes) FILTER (figure = 'requested_memory') AS requested_bytes
    FROM engine_figure LEFT JOIN sized USING (source_id)
),
device AS (
    SELECT max(total_bytes) AS total_bytes FROM (
        SELECT total_bytes FROM oom UNION ALL SELECT memory_total_bytes FROM gpu_sample)
),
settled AS (
    SELECT max(told_count) FILTER (setting = 'memory_share' AND told_count <= 1) AS told_share,
        coalesce(max(told_count) FILTER (setting = 'tensor_parallel'), 1) * coalesce(max(told_count) FILTER (setting = 'pipeline_parallel'), 1) AS part_count
    FROM engine_choice
),
joined AS (
    SELECT coalesce(starved_engine, framework) AS engine, refusal_count, kv_bytes, refused.free_bytes,
        coalesce(figured.weight_bytes, (SELECT max(weight_bytes) FROM model_config) / part_count)::BIGINT AS weight_bytes,
        figured.weight_bytes IS NOT NULL AS is_weight_logged, activation_bytes, non_torch_bytes, told_share, coalesce(is_shared, false) AS is_shared,
        coalesce(figured.total_bytes, refused.card_bytes, device.total_bytes) AS total_bytes, requested_bytes
    FROM refused, figured, device, settled WHERE refusal_count > 0 OR starved_engine IS NOT NULL
)
SELECT *, coalesce(weight_bytes < 0.8 * 0.9 * total_bytes, false) AS is_share_low, coalesce(requested_bytes, total_bytes * coalesce(told_share, 0.9))::BIGINT AS budget_bytes,
    CASE
        WHEN is_shared THEN 'shared'
        WHEN EXISTS (SELECT 1 FROM start_pair WHERE kv_bytes <= 0) THEN 'race'
        WHEN free_bytes >= 0.1 * total_bytes THEN 'share'
        WHEN weight_bytes >= 0.8 * budget_bytes THEN 'weights'
        WHEN non_torch_bytes >= greatest(3 * 2 ** 30, 0.05 * total_bytes) THEN 'outside'
        WHEN activation_bytes >= 0.15 * total_bytes THEN 'activation'
        ELSE 'budget'
    END AS cause
FROM joined;
