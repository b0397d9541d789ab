-- engine_counter: counters and histograms of metrics: what they grew by between the first and the last scrape; since the start of the server
-- where there is one scrape.
CREATE TABLE engine_counter AS
WITH ends AS (
    SELECT source_id, engine, coalesce(replica_id, 0) AS replica_id, metric, reading_kind, bucket_le, detail,
        arg_min(reading, scrape_id) AS first_reading, arg_max(reading, scrape_id) AS last_reading, count(DISTINCT scrape_id) AS scrape_count
    FROM metric WHERE reading_kind <> 'gauge'
    GROUP BY ALL
)
SELECT engine, replica_id, metric, reading_kind, bucket_le, detail, max(scrape_count) AS scrape_count,
    sum(CASE WHEN scrape_count > 1 AND last_reading >= first_reading THEN last_reading - first_reading ELSE last_reading END) AS grown_count
FROM ends
GROUP BY engine, replica_id, metric, reading_kind, bucket_le, detail
ORDER BY ALL;

-- engine_loss: requests that lost their KV blocks and were computed again, with what they are counted against; one row an engine. vLLM V0 says its
-- count since the start of the server, on one line in fifty: two such lines tell how many came between them and in what time, one tells no rate.
CREATE TABLE engine_loss AS
WITH cumulative AS (
    SELECT engine, count(DISTINCT amount_count) = 1 AS is_since_start, max(time_ns) - min(time_ns) AS span_ns,
        CASE WHEN count(DISTINCT amount_count) = 1 THEN max(amount_count) ELSE max(amount_count) - min(amount_count) END AS lost_count
    FROM engine_event WHERE event = 'preempted' AND amount_count IS NOT NULL GROUP BY engine
),
lost AS (
    SELECT engine, sum(preemption_count) AS lost_count FROM engine_load WHERE preemption_count IS NOT NULL GROUP BY engine
    UNION ALL
    SELECT engine, sum(amount_count) FROM engine_event WHERE event IN ('retracted', 'preempted_now') GROUP BY engine
    UNION ALL
    SELECT engine, lost_count FROM cumulative
    UNION ALL
    SELECT engine, sum(grown_count) FROM engine_counter
    WHERE metric IN ('num_preemptions', 'preemptions', 'num_retracted_requests', 'num_retractions') AND reading_kind = 'counter' GROUP BY engine
),
finished AS (
    SELECT engine, sum(grown_count) AS finished_count FROM engine_counter
    WHERE metric IN ('request_success', 'num_requests', 'requests_finished', 'num_requests_completed') AND reading_kind = 'counter' GROUP BY engine
),
timed AS (
    SELECT engine, max(time_ns) - min(time_ns) AS span_ns FROM engine_sample GROUP BY engine
)
SELECT engine, max(lost.lost_count) AS lost_count, any_value(finished_count) AS finished_count,
    any_value(CASE WHEN cumulative.engine IS NULL THEN timed.span_ns WHEN NOT is_since_start THEN cumulative.span_ns END) AS span_ns,
    coalesce(bool_or(is_since_start), false) AS is_since_start
FROM lost LEFT JOIN finished USING (engine) LEFT JOIN timed USING (engine) LEFT JOIN cumulative USING (engine)
GROUP BY engine
ORDER BY engine;
