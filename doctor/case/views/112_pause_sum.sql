-- pause_wait: calls of the operating system in which a thread waited during a pause, by name, where such calls were recorded. `lock_ns` is the part
-- in short waits for a condition, as a thread makes them that asks for Python's interpreter lock every 5 ms. `slept_ns` is the part in a sleep that
-- lasts as long as the pause (four fifths or more): nothing wakes a sleep, and a server that polls for want of requests sleeps many times.
CREATE TABLE pause_wait AS
WITH wait AS (
    SELECT source_id, tid, text.text AS name, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns
    FROM os_call JOIN timeline_source USING (source_id) JOIN text ON text_id = name_id
    WHERE end_ns - start_ns >= 20000 AND regexp_matches(text.text, '^(sem_(timed|clock)?wait|pthread_cond_(timed|clock)?wait|p?poll|p?select'
        || '|epoll_p?wait|futex|recv|accept|(clock_)?nanosleep|usleep|sleep)')
)
SELECT pause.host_call_id, wait.name, sum(least(wait.end_ns, pause.end_ns) - greatest(wait.start_ns, pause.start_ns))::BIGINT AS wait_ns,
    coalesce(sum(least(wait.end_ns, pause.end_ns) - greatest(wait.start_ns, pause.start_ns))
        FILTER (wait.end_ns - wait.start_ns <= 6000000 AND contains(wait.name, 'cond_')), 0)::BIGINT AS lock_ns,
    coalesce(sum(wait.end_ns - wait.start_ns)
        FILTER (wait.end_ns - wait.start_ns >= 0.8 * pause.silence_ns AND contains(wait.name, 'sleep')), 0)::BIGINT AS slept_ns
FROM wait ASOF JOIN pause ON pause.source_id = wait.source_id AND pause.tid = wait.tid AND wait.end_ns >= pause.start_ns
WHERE wait.start_ns < pause.end_ns
GROUP BY pause.host_call_id, wait.name
ORDER BY pause.host_call_id, wait.name;

-- pause_sum: one row on all pauses of the window: how many, how long, and what they are made of. Of those that were looked into, `own_share` lies
-- where the host is seen to work: under an annotation or Python frame that is not one of waiting (a range of more than three pauses, as of a whole
-- request, says nothing of the pause in it), in a fetch of data, beside operators (of 3 % of the pause and more: own recordings of sampling on the
-- CPU have 3.7 to 23 %, idle ones none), or where a step has begun or its results were not fetched.
-- `named_each_ns` is the length of the pauses in the range that most of the silence lies in, where that holds little else.
CREATE TABLE pause_sum AS
WITH named AS (
    SELECT range_name, sum(silence_ns)::BIGINT AS named_ns, CASE WHEN sum(range_ns) <= 1.5 * sum(silence_ns) THEN avg(silence_ns)::BIGINT END AS named_each_ns
    FROM pause WHERE range_name IS NOT NULL
    GROUP BY range_name ORDER BY named_ns DESC, range_name LIMIT 1
),
wait AS (
    SELECT name, (sum(sum(wait_ns)) OVER ())::BIGINT AS all_wait_ns, (sum(sum(lock_ns)) OVER ())::BIGINT AS lock_ns,
        (sum(sum(slept_ns)) OVER ())::BIGINT AS slept_ns
    FROM pause_wait GROUP BY name ORDER BY sum(wait_ns) DESC, name LIMIT 1
),
known AS (
    SELECT coalesce(sum(silence_ns), 0)::BIGINT AS known_ns, coalesce(sum(silence_ns) FILTER (is_waiting_range AND NOT is_data_range) / sum(silence_ns), 0) AS waiting_range_share,
        coalesce(sum(silence_ns) FILTER (coalesce(is_data_range, false) OR coalesce(operator_ns, 0) >= 0.03 * silence_ns OR NOT coalesce(is_at_rest, true)
            OR coalesce(NOT is_waiting_range AND (is_frame OR range_ns <= 3 * silence_ns), false)) / sum(silence_ns), 0) AS own_share
    FROM pause WHERE is_looked_into
)
SELECT count(*) AS pause_count, count(DISTINCT step_id) AS step_count, coalesce(sum(silence_ns), 0)::BIGINT AS silence_ns,
    coalesce(sum(idle_ns), 0)::BIGINT AS idle_ns, arg_max(start_ns, silence_ns) AS longest_start_ns, arg_max(end_ns, silence_ns) AS longest_end_ns,
    any_value(named.range_name) AS range_name, coalesce(any_value(named_ns), 0) AS named_ns, any_value(named_each_ns) AS named_each_ns,
    any_value(wait.name) AS wait_name, coalesce(any_value(all_wait_ns), 0) AS wait_ns, coalesce(any_value(lock_ns), 0) AS lock_ns, coalesce(any_value(slept_ns), 0) AS slept_ns,
    EXISTS (SELECT 1 FROM os_call JOIN timeline_source USING (source_id)) AS is_os_recorded,
    any_value(known_ns) AS known_ns, any_value(waiting_range_share) AS waiting_range_share, any_value(own_share) AS own_share
FROM pause LEFT JOIN named ON true LEFT JOIN wait ON true CROSS JOIN known;

-- pause_input: what the host makes in a pause goes up behind it; pageable copies of the same size are of the same input.
CREATE VIEW pause_input AS
SELECT op.device_op_id, launch.host_call_id
FROM device_op AS op JOIN launch USING (device_op_id), steady_window
WHERE op.kind = 'memcpy' AND op.copy_kind = 'htod' AND op.src_kind = 'pageable' AND op.size_bytes >= 65536 AND op.start_ns >= from_ns
    AND op.start_ns < until_ns AND op.size_bytes IN (
        SELECT size_bytes FROM pause JOIN thread_call AS ending ON ending.host_call_id = pause.host_call_id
        JOIN thread_call AS call ON call.source_id = ending.source_id AND call.pid = ending.pid AND call.tid = ending.tid
            AND call.interval_id = ending.interval_id
        JOIN launch ON launch.host_call_id = call.host_call_id JOIN device_op USING (device_op_id));
