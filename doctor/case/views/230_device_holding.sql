-- device_holding: who holds the memory of each device, at the fullest look of each source: what is listed by process, and what nobody is listed for.
CREATE TABLE device_holding AS
WITH fullest AS (
    SELECT *, row_number() OVER (PARTITION BY source_id, device_id ORDER BY memory_used_bytes DESC NULLS LAST, look_id DESC) AS fullness_place
    FROM gpu_sample WHERE memory_total_bytes IS NOT NULL OR memory_used_bytes IS NOT NULL
),
ps AS (
    -- a list with pid 1 in it shows every process of its namespace
    SELECT coalesce(bool_or(pid = 1), false) AS is_whole FROM host_process WHERE coalesce(process_state, '') <> 'X'
),
held AS (
    -- what ps or /proc said of the same process, wherever the table did not
    SELECT gpu_process.* REPLACE (
        coalesce(gpu_process.process_state, seen.process_state) AS process_state,
        CASE WHEN seen.parent_pid = 1 AND lost_process.pid IS NULL THEN NULL ELSE coalesce(gpu_process.parent_pid, seen.parent_pid) END AS parent_pid,
        coalesce(gpu_process.name, seen.name) AS name,
        coalesce(gpu_process.is_in_proc, CASE WHEN ps.is_whole AND seen.pid IS NULL THEN false END) AS is_in_proc)
    FROM ps, gpu_process LEFT JOIN (
        SELECT pid, coalesce(max(process_state) FILTER (process_state = 'X'), any_value(process_state)) AS process_state, any_value(parent_pid) AS parent_pid, any_value(name) AS name
        FROM host_process GROUP BY pid
    ) AS seen USING (pid) LEFT JOIN lost_process USING (pid)
),
listed AS (
    SELECT source_id, look_id, device_id, count(DISTINCT pid) AS process_count, count(DISTINCT pid) FILTER (coalesce(process_type, 'c') <> 'g') AS compute_count,
        count(*) FILTER (memory_bytes IS NULL) AS unsized_count, coalesce(sum(memory_bytes), 0)::BIGINT AS listed_bytes,
        count(*) FILTER (is_in_proc = false) AS absent_count,
        count(*) FILTER (process_state IN ('D', 'Z', 'X')) AS stuck_count,
        count(*) FILTER (parent_pid = 1) AS orphan_count,
        coalesce(sum(memory_bytes) FILTER (parent_pid = 1 OR process_state IN ('D', 'Z', 'X')), 0)::BIGINT AS stuck_bytes,
        coalesce(sum(memory_bytes) FILTER (is_own = false), 0)::BIGINT AS foreign_bytes,
        count(*) FILTER (is_own) AS own_count,
        arg_max(pid, coalesce(memory_bytes, 0)) AS largest_id, arg_max(name, coalesce(memory_bytes, 0)) AS largest_name
    FROM held GROUP BY ALL
),
mps AS (
    SELECT source_id, look_id, device_id, bool_or(name LIKE 'nvidia-cuda-mps%' OR process_type = 'm+c') AS is_shared FROM gpu_process GROUP BY ALL
)
SELECT source_id, device_id, look_id, fullest.name, driver_model, memory_total_bytes AS total_bytes, memory_used_bytes AS used_bytes,
    memory_free_bytes AS free_bytes,
    -- a table of processes in a file of its own may be empty
    coalesce(process_list, (SELECT any_value(alone.process_list) FROM gpu_sample AS alone WHERE alone.memory_used_bytes IS NULL AND alone.device_id IS NULL
        AND alone.process_list = 'none' AND NOT EXISTS (SELECT 1 FROM gpu_process))) AS process_list, coalesce(is_pid_namespace, false) AS is_pid_namespace, coalesce(is_mig_on, false) AS is_mig_on,
    coalesce(is_shared, false) AS is_shared, coalesce(process_count, 0) AS process_count,
    coalesce(compute_count, 0) AS compute_count, coalesce(unsized_count, 0) AS unsized_count, busy_share,
    coalesce(listed_bytes, 0) AS listed_bytes, coalesce(absent_count, 0) AS absent_count, coalesce(stuck_count, 0) AS stuck_count,
    coalesce(orphan_count, 0) AS orphan_count, coalesce(stuck_bytes, 0) AS stuck_bytes, coalesce(foreign_bytes, 0) AS foreign_bytes,
    coalesce(own_count, 0) AS own_count, largest_id, largest_name,
    greatest(memory_used_bytes - coalesce(listed_bytes, 0), 0)::BIGINT AS unlisted_bytes
FROM fullest LEFT JOIN listed USING (source_id, look_id, device_id) LEFT JOIN mps USING (source_id, look_id, device_id)
WHERE fullness_place = 1
ORDER BY source_id, device_id;

-- context_on_first: processes whose main memory is on another device and that hold little on device 0, or on the device of another one's main memory.
-- Up to 2 GiB: a checkpoint loaded onto the device it names brings some tensors along. A model spread over devices has one process on all of them.
CREATE TABLE context_on_first AS
WITH held AS (
    SELECT source_id, look_id, pid, device_id, max(memory_bytes) AS memory_bytes, any_value(name) AS name FROM gpu_process
    WHERE memory_bytes IS NOT NULL AND device_id IS NOT NULL GROUP BY ALL
),
main AS (
    SELECT source_id, look_id, pid, arg_max(device_id, memory_bytes) AS device_id, max(memory_bytes) AS memory_bytes FROM held GROUP BY ALL
)
SELECT first.source_id, first.look_id, first.pid, first.name, first.device_id AS first_device_id, first.memory_bytes AS context_bytes, main.device_id,
    main.memory_bytes AS main_bytes
FROM held AS first JOIN main USING (source_id, look_id, pid)
WHERE first.device_id <> main.device_id AND main.memory_bytes > 2 * first.memory_bytes
    AND (first.device_id = 0 AND first.memory_bytes BETWEEN 0.1 * 2 ** 30 AND 1.2 * 2 ** 30
        OR first.memory_bytes BETWEEN 0.1 * 2 ** 30 AND 2 * 2 ** 30
            AND EXISTS (SELECT 1 FROM main AS host WHERE host.source_id = first.source_id AND host.look_id = first.look_id
                AND host.device_id = first.device_id AND host.pid <> first.pid))
QUALIFY first.look_id = max(first.look_id) OVER (PARTITION BY first.source_id)
ORDER BY first.source_id, first.device_id, first.pid;
