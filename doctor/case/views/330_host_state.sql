-- cpu_supply: what the machine or container gives the host side: quota and how often it stopped the threads, pressure, runnable threads. One row,
-- or none where nothing of that was recorded. Counters are taken between first and last sample where there are several.
CREATE TABLE cpu_supply AS
WITH control AS (
    SELECT count(*) AS sample_count,
        CASE WHEN count(*) > 1 AND max(period_count) > min(period_count) THEN max(period_count) - min(period_count) ELSE max(period_count) END AS period_count,
        CASE WHEN count(*) > 1 AND max(period_count) > min(period_count) THEN max(throttled_count) - min(throttled_count) ELSE max(throttled_count) END AS throttled_count,
        CASE WHEN count(*) > 1 AND max(period_count) > min(period_count) THEN max(throttled_ns) - min(throttled_ns) ELSE max(throttled_ns) END AS throttled_ns,
        max(quota_ns) AS quota_ns, max(period_ns) AS period_ns
    FROM cgroup_cpu
),
waited AS (
    SELECT max(avg10_share) AS pressure_most_share, median(greatest(avg10_share, coalesce(avg60_share, 0))) AS pressure_share, count(*) AS pressure_count,
        bool_or(resource IS NULL) AS is_resource_unsaid
    FROM pressure WHERE level = 'some' AND (resource = 'cpu' OR resource IS NULL)
),
thread AS (
    SELECT max(runnable_sum) AS runnable_count, max(thread_sum) AS thread_count, max(cpu_sum) AS cpu_share, max(process_count) AS process_count
    FROM (
        SELECT source_id, time_ns, sum(runnable_count) AS runnable_sum, sum(thread_count) AS thread_sum, sum(cpu_share) AS cpu_sum, count(*) AS process_count
        FROM host_process GROUP BY source_id, time_ns
    )
),
machine AS (
    SELECT max(cpu_count) AS cpu_count, min(cpu_allowed_count) AS cpu_allowed_count FROM host_sample
)
SELECT control.*, quota_ns / nullif(period_ns, 0) AS quota_cpu_count, waited.*, thread.*, machine.*
FROM control, waited, thread, machine
WHERE control.sample_count > 0 OR pressure_count > 0 OR runnable_count IS NOT NULL OR thread.thread_count IS NOT NULL
ORDER BY 1;

-- numa_place: processes that hold a device, where their CPUs and memory lie, and where the device lies. Machines with one NUMA node have no rows.
CREATE TABLE numa_place AS
WITH near AS (
    SELECT device_id, any_value(numa_node_id) AS near_node_id, any_value(cpu_affinity) AS near_cpus FROM gpu_affinity GROUP BY device_id
),
node AS (
    SELECT count(DISTINCT node) AS node_count FROM (
        SELECT coalesce(numa_node_id::TEXT, cpu_affinity) AS node FROM gpu_affinity UNION ALL SELECT numa_node_id::TEXT FROM host_process)
),
held AS (
    SELECT pid, device_id, max(memory_bytes) AS memory_bytes FROM gpu_process JOIN source USING (source_id)
    -- numbers that were given to bus addresses in their order name other devices where the topology shows more
    WHERE coalesce(notes, '') NOT LIKE '%numbered in the order%' OR (SELECT count(DISTINCT device_id) FROM gpu_affinity)
        <= (SELECT count(DISTINCT device_id) FROM gpu_process)
    GROUP BY pid, device_id QUALIFY row_number() OVER (PARTITION BY pid ORDER BY max(memory_bytes) DESC NULLS LAST, device_id) = 1
),
spread AS (
    SELECT pid, max(resident_bytes) AS resident_bytes, max(resident_remote_bytes) AS resident_remote_bytes, any_value(name) AS name,
        arg_max(cpu_affinity, coalesce(time_ns, 0)) AS cpu_affinity, max(cpu_allowed_count) AS cpu_allowed_count,
        any_value(numa_node_id) AS numa_node_id, coalesce(any_value(device_id),
            -- a worker of vLLM is called by its rank, which is its device unless the run was given others
            CASE WHEN NOT EXISTS (SELECT 1 FROM engine_setting WHERE setting = 'visible_devices')
                THEN try_cast(regexp_extract(any_value(name), 'Worker_TP(\d{1,2})$', 1) AS INTEGER) END) AS host_device_id
    FROM host_process GROUP BY pid
),
machine AS (
    SELECT max(numa_node_count) AS numa_node_count, max(cpu_count) AS cpu_count FROM host_sample
)
SELECT spread.pid, spread.name, coalesce(host_device_id, held.device_id) AS device_id, near_node_id, near_cpus, cpu_affinity, cpu_allowed_count,
    numa_node_id, resident_bytes, resident_remote_bytes, greatest(node_count, coalesce(numa_node_count, 1)) AS node_count, machine.cpu_count
FROM spread LEFT JOIN held USING (pid) LEFT JOIN near ON near.device_id = coalesce(host_device_id, held.device_id), node, machine
WHERE (cpu_affinity IS NOT NULL OR resident_remote_bytes IS NOT NULL OR numa_node_id IS NOT NULL)
    AND (greatest(node_count, coalesce(numa_node_count, 1)) > 1 OR resident_remote_bytes IS NOT NULL)
ORDER BY spread.pid;
