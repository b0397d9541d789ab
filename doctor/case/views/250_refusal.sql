-- refusal: engines that would not start or go on for want of memory, each told once, with what it lacked and what others hold: the engine's own pid
-- is taken out, and once it has gone whatever is still listed on a device is somebody else's.
CREATE TABLE refusal AS
WITH told AS (
    SELECT *, row_number() OVER (
        PARTITION BY source_id, refusal, device_id, free_bytes, later_free_bytes, requested_bytes, needed_bytes, model_length_count
        ORDER BY line_id) AS told_place
    FROM memory_refusal
),
others AS (
    SELECT coalesce(sum(memory_bytes), 0)::BIGINT AS foreign_bytes, arg_max(pid, memory_bytes) AS foreign_id, arg_max(name, memory_bytes) AS foreign_name
    FROM (
        SELECT pid, any_value(name) AS name, max(memory_bytes) AS memory_bytes FROM gpu_process
        WHERE coalesce(NOT is_own, true) AND pid NOT IN (SELECT pid FROM memory_refusal WHERE pid IS NOT NULL)
        GROUP BY pid
    )
),
card AS (
    SELECT max(total_bytes) AS card_bytes FROM (
        SELECT max(total_bytes) AS total_bytes FROM memory_refusal
        UNION ALL SELECT max(memory_total_bytes) FROM gpu_sample
        UNION ALL SELECT max(amount_bytes) FROM engine_figure WHERE figure = 'total_memory'
    )
)
SELECT source_id, line_id, refusal, framework, told.device_id, pid, free_bytes, later_free_bytes, total_bytes, requested_bytes, utilization_share,
    needed_bytes, available_bytes, model_length_count, kv_token_count, fitting_length_count, card_bytes, foreign_bytes, foreign_id, foreign_name,
    CASE refusal
        WHEN 'startup_free' THEN requested_bytes - free_bytes
        WHEN 'model_length' THEN needed_bytes - available_bytes
        WHEN 'free_grew' THEN later_free_bytes - free_bytes
        WHEN 'unbalanced' THEN later_free_bytes - free_bytes
    END AS short_bytes,
    foreign_bytes >= greatest(2 ** 30, 0.05 * coalesce(card_bytes, 0)) AS is_shared
FROM told, others, card
WHERE told_place = 1
ORDER BY source_id, line_id;
