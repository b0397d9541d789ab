-- start_pair: two engines that sized their KV cache at the same time, one row for each of them, with what a start of the same model had alone.
-- Logs of their own overlap in time. Within one log two engines that nobody numbers have logged other sizes within half a minute, less than any
-- start takes, and one of them less than nothing: ranks of one engine are numbered, or agree.
CREATE TABLE start_pair AS
WITH begun AS (
    SELECT source_id, min(time_ns) AS from_ns FROM engine_event WHERE event = 'version' GROUP BY source_id
),
start AS (
    SELECT source_id, least(min(time_ns), any_value(begun.from_ns)) AS from_ns, max(time_ns) AS until_ns,
        min(amount_bytes) FILTER (figure = 'kv_memory') AS kv_bytes, max(amount_bytes) FILTER (figure = 'weights') AS weight_bytes
    FROM engine_figure LEFT JOIN begun USING (source_id) GROUP BY source_id HAVING kv_bytes IS NOT NULL
),
overlap AS (
    SELECT one.*, other.source_id AS other_id FROM start AS one JOIN start AS other
        ON one.source_id <> other.source_id AND one.from_ns <= other.until_ns AND other.from_ns <= one.until_ns
),
alone AS (
    SELECT * FROM start WHERE source_id NOT IN (SELECT source_id FROM overlap)
),
sized AS (
    SELECT source_id, line_id, time_ns, amount_bytes AS kv_bytes FROM engine_figure
    WHERE figure = 'kv_memory' AND rank IS NULL AND replica_id IS NULL AND time_ns IS NOT NULL
)
SELECT overlap.source_id, overlap.kv_bytes, max(alone.kv_bytes) AS alone_bytes, count(DISTINCT other_id) AS other_count
FROM overlap LEFT JOIN alone ON abs(alone.weight_bytes - overlap.weight_bytes) <= 0.02 * overlap.weight_bytes
GROUP BY overlap.source_id, overlap.kv_bytes
UNION ALL
SELECT one.source_id, one.kv_bytes, NULL, count(*) FROM sized AS one JOIN sized AS other USING (source_id)
WHERE one.line_id <> other.line_id AND abs(one.time_ns - other.time_ns) <= 30000000000 AND one.kv_bytes <= 0
    AND other.kv_bytes - one.kv_bytes >= 2 ** 29
GROUP BY one.source_id, one.line_id, one.kv_bytes
ORDER BY source_id, kv_bytes;
