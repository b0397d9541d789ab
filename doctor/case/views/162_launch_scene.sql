-- launch_scene: one row: the window, the devices, what launches and kernels are like in it, and how long devices were idle with an empty queue: where
-- the operation that ends the idle time started within 10 us of the return of its launch (own H200 recordings: 91 % of launches lie within 5 us, 7 %
-- above 20 us, 0.6 % between)
CREATE TABLE launch_scene AS
WITH empty_queue AS (
    SELECT sum(gap.end_ns - gap.start_ns) AS idle_ns, count(*) AS gap_count,
        arg_max(gap.start_ns, gap.end_ns - gap.start_ns) AS longest_start_ns,
        arg_max(gap.end_ns, gap.end_ns - gap.start_ns) AS longest_end_ns
    FROM device_gap AS gap
    WHERE gap.end_ns - launched_ns < 10000
),
step_work AS (
    SELECT count(*) FILTER (call_class = 'launch') AS launch_count, count(DISTINCT step_id) AS step_count, count(*) FILTER (call_class = 'sync') AS wait_count
    FROM thread_call WHERE step_kind = 'usual'
),
graphs AS (
    SELECT count(*) FILTER (graph_count > 0) AS graph_step_count, count(*) FILTER (graph_count = 0 AND kernel_count > 0) AS eager_step_count FROM (
        SELECT count(*) FILTER (call_class = 'graph') AS graph_count, count(*) FILTER (call_class = 'launch') AS kernel_count FROM thread_call
        WHERE step_id IS NOT NULL GROUP BY step_id)
),
kernel_work AS (
    SELECT median(end_ns - start_ns) AS kernel_median_ns, count(*) AS kernel_count
    FROM device_op, steady_window WHERE kind = 'kernel' AND start_ns >= from_ns AND start_ns < until_ns
),
same_kernel AS (
    SELECT max(same_count) AS same_count FROM (
        SELECT count(*) AS same_count FROM device_op, steady_window
        WHERE kind = 'kernel' AND start_ns >= from_ns AND start_ns < until_ns GROUP BY name_id, grid_blocks)
),
marked AS (
    SELECT count(*) AS marked_count FROM step WHERE chosen_by LIKE 'nvtx:%'
),
pace AS (
    SELECT median(usual_interval_ns) AS launch_interval_ns FROM launch_pace JOIN launching_thread USING (source_id,
    pid, tid) WHERE is_main
),
crowd AS (
    SELECT max(thread_count) AS thread_count, min(repeated_share) AS repeated_share, max(lock_share) AS lock_share FROM crowded_launch
),
loading AS (  -- threads may load, or capture graphs, at the same time
    SELECT sum(greatest(end_ns - fresh_ns, 0)) AS load_ns FROM (
        SELECT end_ns, greatest(start_ns, coalesce(max(end_ns) OVER (ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0))
            AS fresh_ns FROM (SELECT start_ns, end_ns FROM library_load UNION ALL SELECT start_ns, end_ns FROM graph_capture))
),
held AS (
    SELECT count(*) FILTER (is_blocking) / count(*) AS blocking_share FROM sampled_launch
),
devices AS (
    SELECT count(*) AS device_count, sum(busy_ns) AS busy_ns FROM device_busy
)
SELECT until_ns - from_ns AS window_ns, devices.device_count, devices.busy_ns, empty_queue.idle_ns, gap_count, longest_start_ns, longest_end_ns, launch_count, step_count, kernel_median_ns, kernel_count,
    launch_interval_ns, same_count, marked_count, crowd.thread_count, crowd.repeated_share, coalesce(load_ns, 0)::BIGINT AS load_ns,
    coalesce((SELECT sum(idle_ns) FROM pause), 0)::BIGINT AS pause_idle_ns, lock_share, wait_count, graph_step_count, eager_step_count, blocking_share
FROM steady_window, devices, empty_queue, step_work, graphs, kernel_work, pace, same_kernel, marked, crowd, loading, held;
