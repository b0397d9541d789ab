-- crowded_launch: processes of which several threads launch at the same time, the threads that launch a tenth of the work or more counted. They
-- take turns where a backward pass launches from a thread of its own: then one call in a hundred or fewer is of another thread than the one before.
-- Threads that each run the model change places all the time. `repeated_share` is the share of distinct kernels (by name and grid) that a thread
-- launched three times or more: close to 1 where all of them go through the same passes again and again.
CREATE TABLE crowded_launch AS
WITH worker AS (
    SELECT source_id, pid FROM launching_thread
    QUALIFY op_count >= 0.1 * sum(op_count) OVER (PARTITION BY source_id, pid) AND count(*) OVER (PARTITION BY source_id, pid) > 1
),
crowd AS (
    SELECT source_id, pid, count(*) AS thread_count FROM worker GROUP BY source_id, pid HAVING count(*) > 1
),
called AS (
    SELECT source_id, pid, tid <> lag(tid) OVER (PARTITION BY source_id, pid ORDER BY start_ns, host_call_id) AS is_change
    FROM thread_call SEMI JOIN crowd USING (source_id, pid)
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
    SELECT source_id, pid, count(*) FILTER (use_count >= 3) / count(*) AS repeated_share FROM kernel_use GROUP BY source_id, pid
)
SELECT source_id, pid, thread_count, change_share, repeated_share
FROM crowd JOIN changing USING (source_id, pid) JOIN repeated USING (source_id, pid)
WHERE change_share >= 0.05
ORDER BY source_id, pid;
