-- pause_wait: calls of the operating system in which a thread waited during a pause, by name, where such calls were recorded. `lock_ns` is the part
-- in short waits for a condition, as a thread makes them that asks for Python's interpreter lock every 5 ms.
CREATE TABLE pause_wait AS
WITH wait AS (
    SELECT source_id, tid, text.text AS name, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns
    FROM os_call JOIN timeline_source USING (source_id) JOIN text ON text_id = name_id
    WHERE end_ns - start_ns >= 20000 AND regexp_matches(text.text, '^(sem_(timed|clock)?wait|pthread_cond_(timed|clock)?wait|p?poll|p?select'
        || '|epoll_p?wait|futex|recv|accept|(clock_)?nanosleep|usleep|sleep)')
)
SELECT pause.host_call_id, wait.name, sum(least(wait.end_ns, pause.end_ns) - greatest(wait.start_ns, pause.start_ns))::BIGINT AS wait_ns,
    coalesce(sum(least(wait.end_ns, pause.end_ns) - greatest(wait.start_ns, pause.start_ns))
        FILTER (wait.end_ns - wait.start_ns <= 6000000 AND contains(wait.name, 'cond_')), 0)::BIGINT AS lock_ns
FROM wait ASOF JOIN pause ON pause.source_id = wait.source_id AND pause.tid = wait.tid AND wait.end_ns >= pause.start_ns
WHERE wait.start_ns < pause.end_ns
GROUP BY pause.host_call_id, wait.name
ORDER BY pause.host_call_id, wait.name;
