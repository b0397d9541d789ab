-- refusal: engines that would not start or go on for want of memory, each told once, with what it lacked and what others hold: the engine's own pid
-- is taken out, and once it has gone whatever is still listed on a device is somebody else's. An engine that has its weights may be listed without its
-- log telling a pid: by name it is one a device; the only process of a device of unknown size may be the engine too.
CREATE TABLE refusal AS
WITH told AS (
    SELECT *, row_number() OVER (
        PARTITION BY source_id, refusal, device_id, free_bytes, later_free_bytes, requested_bytes, needed_bytes, model_length_count
        ORDER BY line_id) AS told_place
    FROM memory_refusal
),
listed AS (
    SELECT pid, any_value(name) AS name, max(memory_bytes) AS memory_bytes, any_value(device_id) AS device_id,
        pid IN (SELECT pid FROM lost_process) AS is_lost,
        coalesce(regexp_matches(lower(any_value(name)), '^(vllm|sglang|lmdeploy|trtllm|tensorrt_llm)\b'), false) AS is_engine
    FROM gpu_process
    WHERE coalesce(NOT is_own, true) AND pid NOT IN (SELECT pid FROM memory_refusal WHERE pid IS NOT NULL)
    GROUP BY pid
),
ranked AS (
    SELECT *, is_engine AND NOT is_lost AND NOT EXISTS (SELECT 1 FROM memory_refusal WHERE pid IS NOT NULL)
        AND (device_id IS NULL OR row_number() OVER (PARTITION BY device_id, is_engine ORDER BY memory_bytes, pid) = 1) AS is_probably_own
    FROM listed
),
others AS (
    SELECT has_loaded, coalesce(sum(memory_bytes), 0)::BIGINT AS foreign_bytes,
        coalesce(sum(memory_bytes) FILTER (is_lost), 0)::BIGINT AS lost_bytes, arg_max(pid, memory_bytes) AS foreign_id,
        arg_max(name, memory_bytes) AS foreign_name, count(pid) = 1 AND coalesce(bool_and(coalesce(name, 'python') LIKE 'python%'), false)
            AND NOT EXISTS (SELECT 1 FROM ranked WHERE is_probably_own) AND NOT EXISTS (SELECT 1 FROM memory_refusal WHERE pid IS NOT NULL) AS is_alone
    FROM (VALUES (true), (false)) AS loaded(has_loaded) LEFT JOIN ranked ON NOT (has_loaded AND is_probably_own)
    GROUP BY has_loaded
),
card AS (
    SELECT max(total_bytes) AS card_bytes FROM (
        SELECT max(total_bytes) AS total_bytes FROM memory_refusal
        UNION ALL SELECT max(memory_total_bytes) FROM gpu_sample
        UNION ALL SELECT max(amount_bytes) FROM engine_figure WHERE figure = 'total_memory'
    )
)
SELECT source_id, line_id, refusal, framework, told.device_id, pid, free_bytes, later_free_bytes, total_bytes, requested_bytes, utilization_share,
    needed_bytes, available_bytes, model_length_count, kv_token_count, fitting_length_count, card_bytes, foreign_bytes, lost_bytes, foreign_id, foreign_name,
    CASE refusal
        WHEN 'startup_free' THEN requested_bytes - free_bytes
        WHEN 'model_length' THEN needed_bytes - available_bytes
        WHEN 'free_grew' THEN later_free_bytes - free_bytes
        WHEN 'unbalanced' THEN later_free_bytes - free_bytes
    END AS short_bytes,
    foreign_bytes >= greatest(2 ** 30, 0.05 * coalesce(card_bytes, 0)) AS is_shared,
    has_loaded AND is_alone AND card_bytes IS NULL AS is_own_possible
FROM told JOIN others ON has_loaded = (refusal IN ('model_length', 'no_kv_room')), card
WHERE told_place = 1
ORDER BY source_id, line_id;
