-- device_clock: by how much the recorder put device times too late against the host's, per source. The two clocks are matched when a
-- recording starts and may drift apart in a long session. A launch on an empty queue starts its kernel 1 to 5 us after the call; where half
-- of all launches of a recording need one and the same longer time, what they have in common is no work but the clocks.
CREATE TABLE device_clock AS
WITH amount AS (
    SELECT source_id, count(*) AS kernel_count FROM kernel GROUP BY source_id
),
taken AS (  -- some 20,000 kernels tell it as well as five million
    SELECT kernel.source_id, pid, correlation_id, min(start_ns) AS start_ns
    FROM kernel JOIN amount USING (source_id)
    WHERE graph_node_id IS NULL AND hash(correlation_id) % greatest(1, kernel_count // 20000)::UBIGINT = 0
    GROUP BY ALL
),
latency AS (
    SELECT taken.source_id, taken.start_ns - api_call.end_ns AS latency_ns
    FROM taken JOIN api_call USING (source_id, pid, correlation_id)
),
spread AS (
    SELECT source_id, count(*) AS launch_count, quantile_disc(latency_ns, 0.01) AS least_ns, quantile_disc(latency_ns, 0.5) AS median_ns
    FROM latency GROUP BY source_id
)
SELECT source_id, CASE WHEN launch_count >= 100 AND least_ns > 5000 AND median_ns - least_ns < 5000 THEN least_ns - 1500 ELSE 0 END AS late_ns
FROM amount LEFT JOIN spread USING (source_id)
ORDER BY source_id;
