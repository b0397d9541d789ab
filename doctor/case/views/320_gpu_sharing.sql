-- gpu_tenant: processes that compute on a device at the look with most of them, and whether they go through MPS. Helpers of MPS itself are told apart.
CREATE TABLE gpu_tenant AS
WITH counted AS (
    SELECT source_id, look_id, device_id, count(DISTINCT pid) FILTER (NOT coalesce(name LIKE 'nvidia-cuda-mps%', false)) AS tenant_count
    FROM gpu_process WHERE coalesce(process_type, 'c') <> 'g' AND gpu_instance_id IS NULL
    GROUP BY ALL
),
fullest AS (
    SELECT source_id, look_id, device_id FROM counted
    QUALIFY row_number() OVER (PARTITION BY source_id, device_id ORDER BY tenant_count DESC, look_id) = 1
),
mps AS (
    SELECT coalesce(bool_or(name LIKE 'nvidia-cuda-mps%' OR process_type = 'm+c'), false)
        OR EXISTS (SELECT 1 FROM host_process WHERE name LIKE 'nvidia-cuda-mps%') AS is_mps
    FROM gpu_process
),
loaded AS (
    SELECT source_id, device_id, pid, median(sm_share) AS sm_share FROM gpu_process WHERE sm_share IS NOT NULL GROUP BY ALL
),
whole AS (
    SELECT device_id, median(busy_share) AS busy_share FROM gpu_sample GROUP BY device_id
),
tenant AS (  -- one table may tell the memory of a process, another its share of the multiprocessors
    SELECT source_id, look_id, device_id, pid, max(memory_bytes) AS memory_bytes FROM gpu_process
    WHERE coalesce(process_type, 'c') <> 'g' AND gpu_instance_id IS NULL AND NOT coalesce(name LIKE 'nvidia-cuda-mps%', false)
    GROUP BY ALL
)
SELECT source_id, device_id, count(*) AS tenant_count, any_value(is_mps) AS is_mps, median(loaded.sm_share) AS sm_share,
    sum(loaded.sm_share) AS sm_sum_share, any_value(whole.busy_share) AS busy_share, sum(memory_bytes)::BIGINT AS memory_bytes,
    count(loaded.sm_share) AS loaded_count
FROM fullest JOIN tenant USING (source_id, look_id, device_id) LEFT JOIN loaded USING (source_id, device_id, pid)
    LEFT JOIN whole USING (device_id), mps
GROUP BY source_id, device_id
ORDER BY source_id, device_id;

-- process_overlap: for every two processes that launched kernels on one device, how much of the one's kernel time lies within the other's: zero
-- means that they took turns. Taken from the recording, where it holds several processes.
CREATE TABLE process_overlap AS
WITH merged AS (
    SELECT source_id, pid, device_id, start_ns, end_ns FROM device_op, steady_window
    WHERE kind IN ('kernel', 'graph') AND pid IS NOT NULL AND start_ns >= from_ns AND start_ns < until_ns
),
tenant AS (
    SELECT source_id, device_id FROM merged GROUP BY ALL HAVING count(DISTINCT pid) > 1
),
edge AS (
    SELECT source_id, device_id, pid, start_ns AS at_ns, 1 AS step FROM merged JOIN tenant USING (source_id, device_id)
    UNION ALL SELECT source_id, device_id, pid, end_ns, -1 FROM merged JOIN tenant USING (source_id, device_id)
),
own AS (
    SELECT source_id, device_id, pid, at_ns, sum(step) OVER (PARTITION BY source_id, device_id, pid ORDER BY at_ns, step DESC ROWS UNBOUNDED PRECEDING) AS depth FROM edge
),
change AS (
    -- +1 where a process becomes busy, -1 where it stops
    SELECT source_id, device_id, at_ns, CASE WHEN depth > 0 THEN 1 ELSE 0 END - coalesce(lag(CASE WHEN depth > 0 THEN 1 ELSE 0 END) OVER process, 0) AS step
    FROM own WINDOW process AS (PARTITION BY source_id, device_id, pid ORDER BY at_ns ROWS UNBOUNDED PRECEDING)
),
level AS (
    SELECT source_id, device_id, at_ns, sum(step) OVER (PARTITION BY source_id, device_id ORDER BY at_ns, step DESC ROWS UNBOUNDED PRECEDING) AS depth,
        lead(at_ns) OVER (PARTITION BY source_id, device_id ORDER BY at_ns, step DESC) - at_ns AS dur_ns
    FROM change WHERE step <> 0
)
SELECT source_id, device_id, sum(dur_ns) FILTER (depth > 0)::BIGINT AS busy_ns, coalesce(sum(dur_ns) FILTER (depth > 1), 0)::BIGINT AS shared_ns,
    (SELECT count(DISTINCT pid) FROM merged WHERE merged.source_id = level.source_id AND merged.device_id = level.device_id) AS process_count
FROM level
GROUP BY source_id, device_id
ORDER BY source_id, device_id;
