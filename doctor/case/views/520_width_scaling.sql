-- width_scaling: benchmark runs of one load at several widths (devices that share a layer), each against the narrowest: throughput, or the inverse of
-- latency where no throughput was measured. `efficiency_share` is 1 where n times the devices give n times the rate.
CREATE TABLE width_scaling AS
WITH run AS (
    SELECT source_id, tool, row_id, draft_token_count, coalesce(tensor_parallel_count, device_count) AS width_count,
        coalesce(batch_count, concurrency_count) AS load_count, request_rate_hz, prompt_token_count, condition, tensor_parallel_count, pipeline_parallel_count,
        coalesce(output_token_hz, total_token_hz, request_hz) AS rate_hz, coalesce(latency_ns, tpot_p50_ns) AS latency_ns
    FROM bench_row
    WHERE coalesce(data_parallel_count, 1) = 1 AND coalesce(pipeline_parallel_count, 1) = 1
),
rated AS (
    SELECT *, coalesce(rate_hz, 1e9 / nullif(latency_ns, 0)) AS run_hz, rate_hz IS NULL AS is_latency FROM run WHERE width_count >= 1
),
narrow AS (
    SELECT * FROM rated
    QUALIFY row_number() OVER (PARTITION BY source_id, tool, draft_token_count, load_count, request_rate_hz, prompt_token_count, condition ORDER BY width_count, row_id) = 1
)
SELECT wide.source_id, wide.row_id, narrow.width_count AS narrow_count, wide.width_count AS wide_count, narrow.run_hz AS narrow_rate_hz, wide.run_hz AS wide_rate_hz,
    wide.load_count, wide.is_latency OR narrow.is_latency AS is_latency,
    (wide.run_hz / narrow.run_hz) / (wide.width_count / narrow.width_count) AS efficiency_share
FROM rated AS wide JOIN narrow ON narrow.source_id = wide.source_id AND narrow.load_count IS NOT DISTINCT FROM wide.load_count
    AND narrow.request_rate_hz IS NOT DISTINCT FROM wide.request_rate_hz AND narrow.prompt_token_count IS NOT DISTINCT FROM wide.prompt_token_count
    AND narrow.tool = wide.tool AND narrow.draft_token_count IS NOT DISTINCT FROM wide.draft_token_count
    AND narrow.condition IS NOT DISTINCT FROM wide.condition AND narrow.is_latency = wide.is_latency
WHERE wide.width_count > narrow.width_count AND narrow.run_hz > 0 AND wide.run_hz > 0
ORDER BY wide.source_id, wide.row_id;

-- model_room: one row where both the size of a model's weights and the memory of a device are known from any evidence; a rank's weights, where an
-- engine tells those, times the devices that share a layer.
CREATE TABLE model_room AS
WITH size AS (
    SELECT coalesce((SELECT max(weight_bytes) FROM model_config),
        (SELECT max(amount_bytes) FROM engine_figure WHERE figure = 'weights') * coalesce((SELECT tensor_parallel_count FROM parallel_plan), 1)) AS weight_bytes
),
room AS (
    SELECT coalesce((SELECT min(memory_total_bytes) FROM gpu_sample), (SELECT max(amount_bytes) FROM engine_figure WHERE figure = 'total_memory'),
        (SELECT min(memory_bytes) FROM device)) AS told_bytes
),
sheet AS (
    SELECT min(memory_bytes) AS stated_bytes, coalesce(bool_and(is_confirmed), true) AS is_stated_confirmed FROM gpu_model
)
SELECT weight_bytes, coalesce(told_bytes, stated_bytes) AS memory_bytes, weight_bytes / coalesce(told_bytes, stated_bytes) AS weight_share,
    told_bytes IS NOT NULL OR is_stated_confirmed AS is_confirmed, (SELECT max(parameter_count) FROM model_config) AS parameter_count
FROM size, room, sheet WHERE weight_bytes > 0 AND coalesce(told_bytes, stated_bytes) > 0
ORDER BY weight_share;
