-- prefill_run: prefill lines with no decode line between them while requests were being decoded, per engine and replica; `chunk_count` is the
-- target for prompt tokens a step. SGLang logs one decode line in forty steps, so a run ends at the next decode line or after a pause of 10 s.
CREATE TABLE prefill_run AS
WITH chunk AS (
    SELECT engine, max(told_count) FILTER (setting = 'chunk_tokens' AND told_count > 0) AS chunk_count,
        max(told_count) FILTER (setting = 'batched_tokens') AS batched_count
    FROM engine_choice GROUP BY engine
),
line AS (
    SELECT source_id, engine, replica_id, line_id, time_ns, phase = 'prefill' AND running_count > 0 AS is_prefill, running_count, waiting_count,
        new_token_count, is_steady
    FROM engine_load WHERE phase IN ('prefill', 'decode') AND (phase = 'decode' OR new_token_count > 0)
),
followed AS (
    SELECT *, is_prefill AND coalesce(lag(is_prefill) OVER same, false) AND coalesce(time_ns - lag(time_ns) OVER same, 0) <= 10000000000 AS goes_on
    FROM line WINDOW same AS (PARTITION BY source_id, replica_id ORDER BY line_id)
),
numbered AS (
    SELECT *, sum(CASE WHEN goes_on THEN 0 ELSE 1 END) OVER (PARTITION BY source_id, replica_id ORDER BY line_id) AS run_id
    FROM followed
)
SELECT source_id, engine, replica_id, run_id, count(*) AS line_count, min(time_ns) AS start_ns, max(time_ns) AS end_ns,
    max(new_token_count) AS new_token_max_count, median(new_token_count) AS new_token_median_count, sum(new_token_count) AS new_token_count,
    median(running_count) AS running_median_count, min(line_id) AS line_id, any_value(chunk_count) AS chunk_count,
    any_value(batched_count) AS batched_count, bool_or(waiting_count > 0) AS is_anybody_waiting
FROM numbered LEFT JOIN chunk USING (engine)
WHERE is_prefill AND is_steady
GROUP BY source_id, engine, replica_id, run_id
ORDER BY source_id, replica_id, run_id;
