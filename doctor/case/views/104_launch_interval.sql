-- launch_interval: one row a launch-to-launch interval of a launching thread, split by what the host did in it.
CREATE VIEW launch_interval AS
SELECT source_id, pid, tid, interval_id, min(start_ns - coalesce(silence_ns, 0)) AS start_ns, max(end_ns) AS end_ns,
    arg_min(step_id, host_call_id) AS step_id, max(host_call_id) AS last_host_call_id, sum(coalesce(silence_ns, 0))::BIGINT AS silence_ns,
    max(coalesce(silence_ns, 0)) AS longest_silence_ns, coalesce(sum(end_ns - start_ns) FILTER (call_class = 'module'), 0)::BIGINT AS module_ns,
    count(*) FILTER (call_class = 'module') AS module_count,
    coalesce(sum(end_ns - start_ns) FILTER (call_class IN ('sync', 'alloc', 'copy') AND NOT is_launching), 0)::BIGINT AS waiting_ns
FROM thread_call
GROUP BY source_id, pid, tid, interval_id;

-- long_interval: those that last 1 ms or more, hold module calls or belong to a process of which several threads launch: among millions, the few
-- that are looked at one by one.
-- Reads the relations interval and pace (doctor.case.arrays.intervals).
CREATE TABLE long_interval AS
SELECT source_id, pid, tid, interval_id, start_ns, end_ns, step_id::BIGINT AS step_id, last_host_call_id, silence_ns, longest_silence_ns, module_ns,
    module_count, waiting_ns
FROM interval;

-- launch_pace: the usual silence before a launch and the usual time from launch to launch, per thread;
-- `pause_ns` is where an unusual silence begins: twenty usual ones, and at least 500 us. A thread that replays whole steps as graphs has few
-- calls to make, and its silences are all between steps: there a silence of 50 us is one, and 10 us are enough.
CREATE TABLE launch_pace AS
WITH replaying AS (
    SELECT source_id, pid, tid FROM thread_call GROUP BY source_id, pid, tid
    HAVING count(*) FILTER (call_class = 'graph') > count(*) FILTER (call_class = 'launch')
)
SELECT source_id, pid, tid, if(is_replaying, least(silence_ns, 10000), silence_ns)::BIGINT AS usual_silence_ns,
    interval_ns::BIGINT AS usual_interval_ns, if(is_replaying, 50000, greatest(500000, 20 * silence_ns))::BIGINT AS pause_ns
FROM (
    SELECT source_id, pid, tid, coalesce(silence_ns, 0) AS silence_ns, coalesce(interval_ns, 0) AS interval_ns,
        (source_id, pid, tid) IN (SELECT source_id, pid, tid FROM replaying) AS is_replaying
    FROM pace
)
ORDER BY source_id, pid, tid;

-- launching_call: all that the host did to launch each operation by itself: the calls of the launch-to-launch interval that its launch ends; `is_quick`
-- where the silence before the call is no pause. A launch that goes takes these with it.
CREATE VIEW launching_call AS
SELECT device_op_id, call.host_call_id, coalesce(call.silence_ns <= pause_ns, false) AS is_quick
FROM launch JOIN thread_call AS launching USING (host_call_id)
JOIN thread_call AS call USING (source_id, pid, tid, interval_id)
JOIN launch_pace USING (source_id, pid, tid)
WHERE launching.call_class IN ('launch', 'copy', 'memset') AND call.call_class IN ('launch', 'copy', 'memset', 'event', 'other');
