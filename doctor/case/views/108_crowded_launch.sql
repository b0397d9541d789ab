-- crowded_launch: processes of which several threads launch at the same time, those counted that launch a tenth or more of what the busiest does. They take turns
-- where a backward pass launches from a thread of its own: then one call in a hundred or fewer is of another thread than the one before. Threads
-- that each run the model change places all the time. `repeated_share` is the share of distinct kernels (by name and grid) that a thread launched
-- three times or more, 1 where others are one launch in fifty at most: close to 1 where all threads go through the same passes again and again. `lock_share` is the share of the threads' time in
-- waits for a condition that last no longer than a thread waits before it asks for Python's lock again; NULL where nothing tells.
CREATE TABLE crowded_launch AS
WITH worker AS (
    SELECT source_id, pid, launcher_id FROM launching_thread JOIN launcher USING (source_id, pid, tid)
    GROUP BY source_id, pid, launcher_id
    QUALIFY sum(op_count) >= 0.1 * max(sum(op_count)) OVER (PARTITION BY source_id, pid)  -- of twenty alike none does a tenth of all
),
crowd AS (
    SELECT source_id, pid, count(*) AS thread_count FROM worker GROUP BY source_id, pid HAVING count(*) > 1
),
called AS (
    SELECT source_id, pid, launcher_id <> lag(launcher_id) OVER (PARTITION BY source_id, pid ORDER BY start_ns, host_call_id) AS is_change
    FROM thread_call JOIN launcher USING (source_id, pid, tid) SEMI JOIN crowd USING (source_id, pid)
),
changing AS (
    SELECT source_id, pid, count(*) FILTER (is_change) / count(*) AS change_share FROM called GROUP BY source_id, pid
),
kernel_use AS (
    SELECT call.source_id, call.pid, count(*) AS use_count
    FROM thread_call AS call SEMI JOIN crowd USING (source_id, pid) JOIN launch USING (host_call_id)
    JOIN device_op AS op ON op.device_op_id = launch.device_op_id
    WHERE op.kind = 'kernel' GROUP BY call.source_id, call.pid, call.tid, op.name_id, op.grid_blocks
),
repeated AS (
    SELECT source_id, pid, if(coalesce(sum(use_count) FILTER (use_count < 3), 0) <= 0.02 * sum(use_count), 1, count(*) FILTER (use_count >= 3) / count(*))
        AS repeated_share
    FROM kernel_use GROUP BY source_id, pid
),
locked AS (
    SELECT source_id, pid, sum(end_ns - start_ns) / any_value(until_ns - from_ns) / count(DISTINCT tid) AS lock_share
    FROM (SELECT source_id, tid, name_id, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns FROM os_call JOIN timeline_source USING (source_id))
    JOIN launching_thread USING (source_id, tid) JOIN text ON text_id = name_id, steady_window
    WHERE regexp_matches(text.text, '^pthread_cond_(timed|clock)wait') AND end_ns - start_ns <= 6000000 AND start_ns >= from_ns AND end_ns <= until_ns
    GROUP BY source_id, pid
)
SELECT source_id, pid, thread_count, change_share, repeated_share, lock_share
FROM crowd JOIN changing USING (source_id, pid) JOIN repeated USING (source_id, pid) LEFT JOIN locked USING (source_id, pid)
WHERE change_share >= 0.05
ORDER BY source_id, pid;

-- crowded_interval: launch-to-launch intervals of crowded processes, and how many launchers are at work in the middle of each, itself among them
-- (`working_count`); one that waits for the device or pauses is not. `host_ns` is what the host took without waiting.
CREATE TABLE crowded_interval AS
WITH interval AS (
    SELECT source_id, pid, tid, interval_id, launcher_id, last_host_call_id, start_ns, end_ns, end_ns - start_ns - waiting_ns AS host_ns,
        longest_silence_ns <= greatest(pause_ns, 6000000) AND 2 * waiting_ns <= end_ns - start_ns AS is_at_work
    FROM long_interval JOIN launcher USING (source_id, pid, tid) JOIN launch_pace USING (source_id, pid, tid)
    SEMI JOIN crowded_launch USING (source_id, pid)
),
turn AS (
    SELECT source_id, pid, start_ns AS at_ns, 1 AS change FROM interval WHERE is_at_work
    UNION ALL
    SELECT source_id, pid, end_ns, -1 FROM interval WHERE is_at_work
),
busy AS (
    SELECT source_id, pid, at_ns, sum(sum(change)) OVER (PARTITION BY source_id, pid ORDER BY at_ns) AS working_count FROM turn GROUP BY source_id, pid, at_ns
)
SELECT interval.source_id, interval.pid, tid, interval_id, launcher_id, last_host_call_id, start_ns, end_ns, host_ns, is_at_work,
    greatest(coalesce(working_count, 0) + if(is_at_work, 0, 1), 1)::INTEGER AS working_count
FROM interval ASOF LEFT JOIN busy
    ON interval.source_id = busy.source_id AND interval.pid = busy.pid AND busy.at_ns <= interval.start_ns + (interval.end_ns - interval.start_ns) // 2
ORDER BY interval.source_id, interval.pid, tid, interval_id;

-- crowd_pace: which share of the time between launches is left, while so many launchers are at work, where one works alone: the same kernels (by name
-- and grid) compared; NULL where fewer than thirty were launched by one alone.
CREATE TABLE crowd_pace AS
WITH launched AS (
    SELECT interval.source_id, interval.pid, working_count, host_ns, name_id, grid_blocks
    FROM crowded_interval AS interval
    JOIN (SELECT host_call_id, min(device_op_id) AS device_op_id
        FROM launch SEMI JOIN crowded_interval ON host_call_id = last_host_call_id GROUP BY host_call_id) AS first
        ON first.host_call_id = interval.last_host_call_id
    JOIN device_op USING (device_op_id)
    WHERE is_at_work
),
alone AS (
    SELECT source_id, pid, name_id, grid_blocks, avg(host_ns) AS alone_ns
    FROM launched WHERE working_count = 1 GROUP BY source_id, pid, name_id, grid_blocks HAVING count(*) >= 3
    QUALIFY sum(count(*)) OVER (PARTITION BY source_id, pid) >= 30
)
SELECT source_id, pid, working_count, count(alone_ns) AS compared_count, sum(alone_ns) / sum(host_ns) FILTER (alone_ns IS NOT NULL) AS alone_share
FROM launched LEFT JOIN alone USING (source_id, pid, name_id, grid_blocks)
GROUP BY source_id, pid, working_count
ORDER BY source_id, pid, working_count;
