-- code_load: launch-to-launch intervals in which code was loaded or a library built a plan for a shape it had not seen.
-- A recording with module calls shows them in the interval, and the whole interval counts: the calls themselves are a tenth of it.
-- A Kineto trace has no module calls; there it is a silence of over a millisecond almost wholly under one aten:: operator. The operator launches
-- what it prepared: one that ends before the launch worked on the host (random numbers, a copy of a CPU tensor). Threads that the profiler was
-- not started on show no operators; there it is a silence right before a kernel that cuDNN generates when a plan is built, or at the first use:
-- before the first of many equal kernels of a step, where the same code runs again and again behind it without a silence, in three steps or
-- more. A scheduler's pause comes between steps, where no kernel of the step was before. What a capture of a graph loads belongs to the capture.
CREATE TABLE code_load AS
SELECT source_id, pid, tid, interval_id, start_ns, end_ns, step_id, last_host_call_id, 'module calls' AS seen_as
FROM long_interval ANTI JOIN graph_capture USING (source_id, pid, tid, interval_id)
WHERE module_count > 0 AND silence_ns + module_ns > 1000000 AND waiting_ns < 0.5 * (end_ns - start_ns)
UNION ALL
SELECT source_id, pid, tid, interval_id, start_ns, end_ns, step_id, last_host_call_id, 'silence under ' || name
FROM (
    SELECT interval.*, text.text AS name,
        row_number() OVER (PARTITION BY interval.source_id, interval.pid, interval.tid, interval.interval_id ORDER BY host_op.end_ns - host_op.start_ns) AS depth
    FROM long_interval AS interval ANTI JOIN graph_capture USING (source_id, pid, tid, interval_id)
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

CREATE TABLE _silent AS
SELECT * FROM long_interval ANTI JOIN graph_capture USING (source_id, pid, tid, interval_id)
WHERE longest_silence_ns > 1000000 AND waiting_ns < 0.5 * (end_ns - start_ns)
    AND source_id NOT IN (SELECT source_id FROM long_interval WHERE module_count > 0)
    AND (source_id, pid, tid, interval_id) NOT IN (SELECT source_id, pid, tid, interval_id FROM code_load);

-- the kernel behind each silence: a plan may clear its workspace first, and the memset then ends the silence
CREATE TABLE _behind_silence AS
WITH ended AS (  -- what is launched in an interval its last call launches
    SELECT _silent.*, op.kind, op.name_id
    FROM _silent JOIN launch ON launch.host_call_id = last_host_call_id JOIN device_op AS op USING (device_op_id)
)
SELECT * EXCLUDE (kind), interval_id AS kernel_interval_id FROM ended WHERE kind = 'kernel'
UNION
SELECT ended.* EXCLUDE (kind, name_id), op.name_id, call.interval_id
FROM ended
JOIN thread_call AS call ON call.source_id = ended.source_id AND call.pid = ended.pid AND call.tid = ended.tid AND call.interval_id = ended.interval_id + 1
JOIN launch USING (host_call_id) JOIN device_op AS op USING (device_op_id)
WHERE ended.kind = 'memset' AND op.kind = 'kernel';

-- kernels of a thread that come three times or more behind a silence and right behind another kernel: mostly none
CREATE TABLE _candidate AS
SELECT source_id, pid, tid, name_id FROM (
    SELECT silent.source_id, silent.pid, silent.tid, silent.name_id
    FROM (SELECT *, kernel_interval_id - unnest([0, 1, 2]) AS near_interval_id FROM _behind_silence) AS silent
    JOIN thread_call AS call ON call.source_id = silent.source_id AND call.pid = silent.pid AND call.tid = silent.tid
        AND call.interval_id = silent.near_interval_id
    JOIN launch USING (host_call_id) JOIN device_op AS op USING (device_op_id)
    WHERE is_launching AND op.kind = 'kernel'
    GROUP BY silent.source_id, silent.pid, silent.tid, silent.name_id, kernel_interval_id HAVING count(*) > 1
)
GROUP BY source_id, pid, tid, name_id HAVING count(*) >= 3;

CREATE TABLE _first_use AS
WITH near AS (  -- where they are launched, and as far before as what was launched before still counts
    SELECT call.source_id, call.pid, call.tid, call.interval_id - unnest([0, 1, 2]) AS interval_id
    FROM device_op AS op JOIN launch USING (device_op_id) JOIN thread_call AS call USING (host_call_id)
    SEMI JOIN _candidate AS silent ON silent.source_id = call.source_id AND silent.pid = call.pid AND silent.tid = call.tid AND silent.name_id = op.name_id
    WHERE op.kind = 'kernel' AND op.name_id IN (SELECT name_id FROM _candidate)
),
kernel_launch AS (  -- with what the thread launched before
    SELECT call.source_id, call.pid, call.tid, call.interval_id, call.step_id, op.name_id,
        lag(op.name_id) OVER thread AS before_name_id, lag(call.step_id) OVER thread AS before_step_id,
        call.interval_id - lag(call.interval_id) OVER thread AS interval_count
    FROM (SELECT * FROM thread_call SEMI JOIN near USING (source_id, pid, tid, interval_id) WHERE is_launching) AS call
    JOIN launch USING (host_call_id) JOIN device_op AS op ON op.device_op_id = launch.device_op_id
    WHERE op.kind = 'kernel'
    WINDOW thread AS (PARTITION BY call.source_id, call.pid, call.tid ORDER BY call.interval_id)
),
silence AS (
    SELECT source_id, pid, tid, kernel_interval_id AS interval_id, max(longest_silence_ns) AS silence_ns FROM _behind_silence GROUP BY ALL
),
by_step AS (
    SELECT source_id, pid, tid, step_id, name_id, before_name_id, min(interval_id) AS interval_id, count(*) AS use_count,
        min(interval_id) FILTER (silence_ns IS NOT NULL) AS silent_interval_id, count(silence_ns) AS silent_count
    FROM kernel_launch LEFT JOIN silence USING (source_id, pid, tid, interval_id)
    WHERE before_step_id IS NOT DISTINCT FROM step_id AND interval_count <= 2
    GROUP BY ALL
)
SELECT source_id, pid, tid, interval_id
FROM by_step
WHERE use_count >= 4 AND silent_count = 1 AND silent_interval_id = interval_id
QUALIFY count(*) OVER (PARTITION BY source_id, pid, tid, name_id, before_name_id) >= 3;

INSERT INTO code_load
SELECT source_id, pid, tid, interval_id, start_ns, end_ns, step_id, last_host_call_id, min(seen_as)
FROM (
    SELECT _behind_silence.*, 'silence before a generated kernel' AS seen_as
    FROM _behind_silence JOIN text ON text_id = name_id WHERE text LIKE 'cudnn_generated_%'
    UNION ALL
    SELECT _behind_silence.*, 'silence at the first use in a step' AS seen_as
    FROM _behind_silence JOIN _first_use ON _first_use.source_id = _behind_silence.source_id AND _first_use.pid = _behind_silence.pid
        AND _first_use.tid = _behind_silence.tid AND _first_use.interval_id = _behind_silence.kernel_interval_id
)
GROUP BY ALL
ORDER BY source_id, pid, tid, interval_id;

DROP TABLE _first_use;
DROP TABLE _candidate;
DROP TABLE _behind_silence;
DROP TABLE _silent;

-- pause: long silences of a launching thread that no code load explains, and what is known of the longest 200 of them
-- `range_name` is the shortest annotation, operator or Python frame that covers one and `range_ns` its length; `is_waiting_range` tells that its name
-- is one of waiting, `is_data_range` that one of those that cover it fetches data. `operator_ns` is work of operators that ended within the silence.
-- `is_at_rest` tells that the process had waited for the device since it launched last: only then can it have handed its results out. A silence behind
-- an upload is within a step that has begun.
-- While another thread of the process launches (a backward pass), the thread's silence is no pause: it begins when that one is done.
CREATE TABLE _silence AS
WITH called AS (  -- what a marked step does before its first call lies in the window, and is a silence of known length
    SELECT call.* REPLACE (coalesce(silence_ns, CASE WHEN contains(chosen_by, 'from the start of the marked step') AND host_call_id IN (
        SELECT min(host_call_id) FROM thread_call, steady_window WHERE contains(chosen_by, 'from the start of the marked step') GROUP BY source_id, pid, tid)
        THEN start_ns - from_ns END) AS silence_ns)
    FROM (SELECT * FROM thread_call WHERE silence_ns IS NULL OR silence_ns > (SELECT min(pause_ns) FROM launch_pace)) AS call, steady_window
)
SELECT host_call_id, called.source_id, called.pid, called.tid, called.start_ns - silence_ns AS start_ns,
    called.start_ns AS end_ns, step_id, interval_id, usual_silence_ns, pause_ns
FROM called
JOIN launch_pace USING (source_id, pid, tid), steady_window
WHERE silence_ns > pause_ns AND called.start_ns - silence_ns >= from_ns
    AND (source_id, pid, tid, interval_id) NOT IN (
        SELECT source_id, pid, tid, interval_id FROM code_load UNION ALL SELECT source_id, pid, tid, interval_id FROM graph_capture);

CREATE TABLE _pause AS
SELECT host_call_id, source_id, pid, tid, start_ns, end_ns, end_ns - start_ns AS silence_ns, step_id, interval_id, usual_silence_ns
FROM (
    SELECT _silence.* REPLACE (greatest(_silence.start_ns, coalesce(last.launched_ns, _silence.start_ns)) AS start_ns)
    FROM _silence ASOF LEFT JOIN (
        SELECT source_id, pid, start_ns AS launch_ns, end_ns AS launched_ns
        FROM thread_call SEMI JOIN (SELECT source_id, pid FROM launching_thread GROUP BY source_id, pid HAVING count(*) > 1) USING (source_id, pid)
        WHERE is_launching
    ) AS last
        ON _silence.source_id = last.source_id AND _silence.pid = last.pid AND _silence.end_ns > last.launch_ns
)
WHERE end_ns - start_ns > pause_ns;

CREATE TABLE pause AS
WITH longest AS (
    SELECT * FROM _pause ORDER BY silence_ns DESC LIMIT 200  -- naming costs a range join; the long ones matter
),
annotation AS (
    SELECT source_id, pid, tid, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns, name_id, false AS is_frame
    FROM nvtx_range JOIN timeline_source USING (source_id) WHERE end_ns IS NOT NULL
    UNION ALL
    SELECT source_id, pid, tid, start_ns + shift_ns, end_ns + shift_ns, name_id, op_kind = 'python_function'
    FROM host_op JOIN timeline_source USING (source_id) WHERE end_ns - host_op.start_ns > 500000
),
covering AS (
    SELECT host_call_id, arg_min(name, range_ns) AS range_name, min(range_ns) AS range_ns, arg_min(is_frame, range_ns) AS is_frame,
        bool_or(regexp_matches(lower(name), 'dataloader|data_?loading|fetch_?batch|next_?batch')) AS is_data_range,
        regexp_matches(lower(arg_min(name, range_ns)), '(^|[^a-z])(wait|idle|sleep|poll|epoll|select|acquire|recv|accept)([^a-z]|$)|wait_for|'
            || 'waiting|queue\.py\(\d+\): get|recv_req|get_(new_)?request') AS is_waiting_range
    FROM (
        SELECT longest.host_call_id, text.text AS name, annotation.end_ns - annotation.start_ns AS range_ns, is_frame
        FROM longest
        JOIN annotation ON annotation.source_id = longest.source_id AND annotation.tid = longest.tid
            AND annotation.start_ns < longest.end_ns AND annotation.end_ns > longest.start_ns
        JOIN text ON text_id = annotation.name_id
        WHERE least(annotation.end_ns, longest.end_ns) - greatest(annotation.start_ns, longest.start_ns) >= 0.8 * longest.silence_ns
    )
    GROUP BY host_call_id
),
operator AS (
    SELECT host_call_id, longest.start_ns AS from_ns, longest.end_ns AS until_ns, operation.start_ns, operation.end_ns
    FROM longest JOIN (
        SELECT source_id, tid, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns
        FROM host_op JOIN timeline_source USING (source_id) WHERE op_kind = 'cpu_op' AND end_ns - host_op.start_ns > 100000
    ) AS operation ON operation.source_id = longest.source_id AND operation.tid = longest.tid
        AND operation.start_ns < longest.end_ns AND operation.end_ns > longest.start_ns
),
launching AS (  -- the operator that launches what ends the silence is no work within it, nor is what it calls
    SELECT host_call_id, min(start_ns) AS start_ns FROM operator WHERE end_ns >= until_ns GROUP BY host_call_id
),
worked AS (
    SELECT host_call_id, sum(greatest(end_ns - fresh_ns, 0))::BIGINT AS operator_ns
    FROM (
        SELECT operator.host_call_id, operator.end_ns, greatest(operator.start_ns, from_ns, coalesce(max(operator.end_ns) OVER (
            PARTITION BY operator.host_call_id ORDER BY operator.start_ns, operator.end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)) AS fresh_ns
        FROM operator LEFT JOIN launching USING (host_call_id)
        WHERE operator.start_ns < coalesce(launching.start_ns, until_ns) AND operator.end_ns < until_ns
    )
    GROUP BY host_call_id
),
shared AS (
    SELECT source_id, pid FROM launching_thread GROUP BY source_id, pid HAVING count(*) > 1
),
last_launch AS (  -- where one thread launches, the interval before ends with it
    SELECT longest.host_call_id, longest.source_id, longest.pid, longest.end_ns, call.host_call_id AS launch_id, call.start_ns AS launch_ns
    FROM longest ANTI JOIN shared USING (source_id, pid)
    JOIN thread_call AS call ON call.source_id = longest.source_id AND call.pid = longest.pid AND call.tid = longest.tid
        AND call.interval_id = longest.interval_id - 1
    WHERE is_launching
    UNION ALL
    SELECT longest.host_call_id, longest.source_id, longest.pid, longest.end_ns, call.host_call_id, call.start_ns
    FROM longest ASOF JOIN (SELECT source_id, pid, host_call_id, start_ns FROM thread_call SEMI JOIN shared USING (source_id, pid) WHERE is_launching) AS call
        ON call.source_id = longest.source_id AND call.pid = longest.pid AND longest.end_ns > call.start_ns
),
launched AS (
    SELECT last_launch.host_call_id, coalesce(bool_or(op.copy_kind = 'htod'), false) AS is_upload
    FROM last_launch LEFT JOIN launch ON launch.host_call_id = launch_id LEFT JOIN device_op AS op ON op.device_op_id = launch.device_op_id
    GROUP BY last_launch.host_call_id
),
waited AS (
    SELECT source_id, pid, start_ns, max(end_ns) OVER (PARTITION BY source_id, pid ORDER BY start_ns) AS end_ns
    FROM host_call SEMI JOIN longest USING (source_id, pid)
    WHERE call_class = 'sync' OR is_blocking_copy OR base_name IN ('cudaEventQuery', 'cudaStreamQuery', 'cuEventQuery', 'cuStreamQuery', 'hipEventQuery')
),
rest AS (
    SELECT last_launch.host_call_id, NOT is_upload AND coalesce(waited.end_ns > launch_ns, false) AS is_at_rest
    FROM last_launch JOIN launched USING (host_call_id)
    ASOF LEFT JOIN waited ON waited.source_id = last_launch.source_id AND waited.pid = last_launch.pid AND last_launch.end_ns > waited.start_ns
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
SELECT _pause.* EXCLUDE (interval_id), range_name, range_ns, is_frame, is_waiting_range, is_data_range, operator_ns, is_at_rest,
    _pause.host_call_id IN (SELECT host_call_id FROM longest) AS is_looked_into, coalesce(idle_ns, 0)::BIGINT AS idle_ns
FROM _pause LEFT JOIN covering USING (host_call_id) LEFT JOIN worked USING (host_call_id) LEFT JOIN rest USING (host_call_id)
LEFT JOIN idle USING (host_call_id)
ORDER BY host_call_id;

DROP TABLE _pause;
DROP TABLE _silence;
