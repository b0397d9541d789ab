-- crowded_call: calls of crowded processes. `left_share` is what is left of the time that the host takes for one, and of the silence before, where its
-- launcher works alone and lives on: nothing of what a new thread loads with its first launches, a quarter of all. Where too little was launched by
-- one alone, the host takes half the number of those at work to the power of 1.3 as long: in ten programs on an H200 1.3 times as long for two threads,
-- 2.2 for three, 1.9 to 5.2 for four, median 3.1, and 11 for eight, who wait for each other more often.
CREATE TABLE crowded_call AS
WITH loading AS (
    SELECT source_id, pid, tid, interval_id FROM code_load
    JOIN (SELECT source_id, pid, tid, count(*) AS interval_count FROM long_interval GROUP BY ALL) USING (source_id, pid, tid)
    WHERE interval_id <= 0.25 * interval_count
)
SELECT call.host_call_id, source_id, pid, tid, interval_id, launcher_id, call.call_class, is_at_work, loading.interval_id IS NOT NULL AS is_loading,
    if(is_loading, 0, if(is_at_work, least(coalesce(if(compared_count >= 30, alone_share, NULL), 2 / working_count ** 1.3), 1), 1)) AS left_share
FROM crowded_interval JOIN thread_call AS call USING (source_id, pid, tid, interval_id) LEFT JOIN crowd_pace USING (source_id, pid, working_count)
LEFT JOIN loading USING (source_id, pid, tid, interval_id);

-- crowded_op: work that crowded processes launch. `alone_share` is its time over that with the rows of all threads: kernels below 5 us stay as
-- they are, longer ones take longer once every multiprocessor has a block.
CREATE TABLE crowded_op AS
SELECT device_op_id, launcher_id, CASE
    WHEN op.end_ns - op.start_ns < 5000 THEN 1.0
    WHEN grid_blocks > 0 AND sm_count > 0 THEN greatest(1.0, grid_blocks / sm_count) / greatest(1.0, thread_count * grid_blocks / sm_count)
    ELSE 1 / thread_count END AS alone_share
FROM crowded_call JOIN crowded_launch USING (source_id, pid) JOIN launch USING (host_call_id) JOIN device_op AS op USING (device_op_id),
    (SELECT max(sm_count)::DOUBLE AS sm_count FROM device);
