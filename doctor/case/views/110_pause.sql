-- code_load: launch-to-launch intervals in which code was loaded or a library built a plan for a shape it had not seen.
-- A recording with module calls shows them in the interval, and the whole interval counts: the calls themselves are a tenth of it.
-- A Kineto trace has no module calls; there it is a silence of over a millisecond almost wholly under one aten:: operator, or right before
-- a kernel that cuDNN generates when a plan is built (threads that the profiler was not started on show no operators). The operator launches
-- what it prepared: one that ends before the launch worked on the host (random numbers, a copy of a CPU tensor).
CREATE TABLE code_load AS
SELECT source_id, pid, tid, interval_id, start_ns, end_ns, step_id, last_host_call_id, 'module calls' AS seen_as
FROM launch_interval
WHERE module_count > 0 AND silence_ns + module_ns > 1000000 AND waiting_ns < 0.5 * (end_ns - start_ns)
UNION ALL
SELECT source_id, pid, tid, interval_id, start_ns, end_ns, step_id, last_host_call_id, 'silence under ' || name
FROM (
    SELECT interval.*, text.text AS name,
        row_number() OVER (PARTITION BY interval.source_id, interval.pid, interval.tid, interval.interval_id ORDER BY host_op.end_ns - host_op.start_ns) AS depth
    FROM launch_interval AS interval
    JOIN (
        SELECT source_id, pid, tid, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns, name_id
        FROM host_op JOIN timeline_source USING (source_id) WHERE op_kind = 'cpu_op' AND end_ns - start_ns > 1000000
    ) AS host_op
        ON host_op.source_id = interval.source_id AND host_op.pid = interval.pid AND host_op.tid = interval.tid
        AND host_op.start_ns < interval.end_ns AND host_op.end_ns > interval.start_ns
    JOIN text ON text_id = host_op.name_id
    JOIN thread_call AS launching ON launching.host_call_id = interval.last_host_call_id
    WHERE interval.longest_silence_ns > 1000000 AND interval.module_count = 0 AND host_op.end_ns >= launching.start_ns
        AND least(host_op.end_ns, interval.end_ns) - greatest(host_op.start_ns, interval.start_ns) >= 0.8 * interval.longest_silence_ns
        AND host_op.end_ns - host_op.start_ns < 3 * interval.longest_silence_ns
)
WHERE depth = 1 AND name LIKE 'aten::%'
ORDER BY source_id, pid, tid, interval_id;

INSERT INTO code_load
WITH generated AS (
    SELECT DISTINCT call.source_id, call.pid, call.tid, call.interval_id
    FROM thread_call AS call JOIN launch USING (host_call_id) JOIN device_op AS op ON op.device_op_id = launch.device_op_id
    JOIN text ON text_id = op.name_id WHERE text LIKE 'cudnn_generated_%'
),
ended AS (  -- a plan may clear its workspace first: the memset then ends the silence
    SELECT source_id, pid, tid, interval_id FROM generated
    UNION
    SELECT call.source_id, call.pid, call.tid, call.interval_id
    FROM thread_call AS call JOIN launch_interval AS interval ON interval.last_host_call_id = call.host_call_id
    JOIN generated ON generated.source_id = call.source_id AND generated.pid = call.pid AND generated.tid = call.tid
        AND generated.interval_id = call.interval_id + 1
    WHERE call.call_class = 'memset'
)
SELECT source_id, pid, tid, interval_id, start_ns, end_ns, step_id, last_host_call_id, 'silence before a generated kernel'
FROM launch_interval AS interval JOIN ended USING (source_id, pid, tid, interval_id)
WHERE longest_silence_ns > 1000000
    AND source_id NOT IN (SELECT source_id FROM launch_interval WHERE module_count > 0)
    AND (source_id, pid, tid, interval_id) NOT IN (SELECT source_id, pid, tid, interval_id FROM code_load);

-- pause: long silences of a launching thread that no code load explains, and the annotation that covers each
-- While another thread of the process launches (a backward pass), the thread's silence is no pause: it begins when that one is done.
CREATE TABLE _silence AS
SELECT host_call_id, thread_call.source_id, thread_call.pid, thread_call.tid, thread_call.start_ns - silence_ns AS start_ns,
    thread_call.start_ns AS end_ns, step_id, usual_silence_ns, pause_ns
FROM thread_call
JOIN launch_pace USING (source_id, pid, tid), steady_window
WHERE silence_ns > pause_ns AND thread_call.start_ns - silence_ns >= from_ns
    AND (source_id, pid, tid, interval_id) NOT IN (SELECT source_id, pid, tid, interval_id FROM code_load);

CREATE TABLE _pause AS
SELECT host_call_id, source_id, pid, tid, start_ns, end_ns, end_ns - start_ns AS silence_ns, step_id, usual_silence_ns
FROM (
    SELECT _silence.* REPLACE (greatest(_silence.start_ns, coalesce(last.launched_ns, _silence.start_ns)) AS start_ns)
    FROM _silence ASOF LEFT JOIN (SELECT source_id, pid, start_ns AS launch_ns, end_ns AS launched_ns FROM thread_call WHERE is_launching) AS last
        ON _silence.source_id = last.source_id AND _silence.pid = last.pid AND _silence.end_ns > last.launch_ns
)
WHERE end_ns - start_ns > pause_ns;

CREATE TABLE pause AS
WITH longest AS (
    SELECT * FROM _pause ORDER BY silence_ns DESC LIMIT 200  -- naming costs a range join; the long ones matter
),
annotation AS (
    SELECT source_id, pid, tid, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns, name_id
    FROM nvtx_range JOIN timeline_source USING (source_id) WHERE end_ns IS NOT NULL
    UNION ALL
    SELECT source_id, pid, tid, start_ns + shift_ns, end_ns + shift_ns, name_id
    FROM host_op JOIN timeline_source USING (source_id) WHERE end_ns - host_op.start_ns > 500000
),
covering AS (
    SELECT longest.host_call_id, arg_min(text.text, annotation.end_ns - annotation.start_ns) AS range_name
    FROM longest
    JOIN annotation ON annotation.source_id = longest.source_id AND annotation.tid = longest.tid
        AND annotation.start_ns < longest.end_ns AND annotation.end_ns > longest.start_ns
    JOIN text ON text_id = annotation.name_id
    WHERE least(annotation.end_ns, longest.end_ns) - greatest(annotation.start_ns, longest.start_ns) >= 0.8 * longest.silence_ns
    GROUP BY longest.host_call_id
),
long_gap AS (
    SELECT source_id, device_id, start_ns, end_ns, sum(end_ns - start_ns) OVER (PARTITION BY source_id, device_id ORDER BY start_ns) AS idle_before_end_ns
    FROM device_gap WHERE end_ns - start_ns > 100000
),
edge AS (  -- idle time before the end less that before the start: a join by range would compare every pause with every gap
    SELECT host_call_id, source_id, device_id, unnest([start_ns, end_ns]) AS time_ns, unnest([-1, 1]) AS sign
    FROM _pause JOIN (SELECT DISTINCT source_id, device_id FROM long_gap) USING (source_id)
),
idle AS (
    SELECT host_call_id, sum(sign * (idle_before_end_ns - greatest(gap.end_ns - time_ns, 0))) AS idle_ns
    FROM edge ASOF JOIN long_gap AS gap ON gap.source_id = edge.source_id AND gap.device_id = edge.device_id AND edge.time_ns >= gap.start_ns
    GROUP BY host_call_id
)
SELECT _pause.*, range_name, coalesce(idle_ns, 0)::BIGINT AS idle_ns
FROM _pause LEFT JOIN covering USING (host_call_id) LEFT JOIN idle USING (host_call_id)
ORDER BY host_call_id;

DROP TABLE _pause;
DROP TABLE _silence;
