-- seen_share: by kind of interruption of a launching thread (pauses, late compilations), how many of those that a loop has lie in the window, as a
-- share. Between n steps there are n - 1: where the thread works about as long (within a quarter, as for usual steps) before the first and behind the
-- last as between two, or launches about as often, whatever it waits for meanwhile, the window begins and ends with a whole step, and one interruption
-- is outside; passes of new shapes, which compile, launch as often without being a loop. Speaks of the thread interrupted for longest, and of what
-- lasts a tenth of the longest or more: a short one lies within a step.
CREATE TABLE seen_share AS
WITH interruption AS (
    SELECT 'pause' AS kind, pause.source_id, pause.pid, pause.tid, pause.start_ns, pause.end_ns, interval_id
    FROM pause JOIN thread_call USING (host_call_id)
    UNION ALL SELECT 'compilation', source_id, pid, tid, start_ns, end_ns, NULL FROM compile_event WHERE is_late
),
of_thread AS (
    SELECT *, sum(end_ns - start_ns) OVER (PARTITION BY kind, source_id, pid, tid) AS all_ns FROM interruption
),
chosen AS (
    SELECT kind, source_id, pid, tid, start_ns, end_ns, interval_id FROM (
        SELECT * FROM of_thread QUALIFY dense_rank() OVER (PARTITION BY kind ORDER BY all_ns DESC, source_id, pid, tid) = 1)
    QUALIFY 10 * (end_ns - start_ns) >= max(end_ns - start_ns) OVER (PARTITION BY kind)
),
whole AS (  -- an interval is numbered by the launches of its thread before it
    SELECT min(interval_id) AS first_id, max(interval_id) AS last_id FROM thread_call
    SEMI JOIN (SELECT source_id, pid, tid FROM chosen WHERE kind = 'pause') USING (source_id, pid, tid)
),
worked AS (
    SELECT kind, start_ns - lag(end_ns, 1, from_ns) OVER thread AS work_ns, interval_id - lag(interval_id, 1, first_id) OVER thread AS launch_count,
        row_number() OVER thread = 1 AS is_at_edge
    FROM chosen, steady_window, whole WINDOW thread AS (PARTITION BY kind ORDER BY start_ns)
    UNION ALL
    SELECT kind, any_value(until_ns) - max(end_ns), any_value(last_id) - max(interval_id), true FROM chosen, steady_window, whole GROUP BY kind
),
usual AS (
    SELECT kind, median(work_ns) FILTER (NOT is_at_edge) AS work_ns, median(launch_count) FILTER (NOT is_at_edge) AS launch_count,
        count(*) AS worked_count
    FROM worked GROUP BY kind
)
SELECT kind, if(coalesce(bool_and(edge.work_ns BETWEEN 0.75 * usual.work_ns AND 1.25 * usual.work_ns), false)
        OR kind = 'pause' AND coalesce(bool_and(edge.launch_count BETWEEN 0.75 * usual.launch_count AND 1.25 * usual.launch_count AND usual.launch_count > 0), false),
    1 - 1 / any_value(worked_count), 1.0)::DOUBLE AS seen_share
FROM worked AS edge JOIN usual USING (kind)
WHERE is_at_edge
GROUP BY kind
ORDER BY kind;
