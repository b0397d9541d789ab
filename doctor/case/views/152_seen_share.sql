-- seen_share: by kind of interruption of a launching thread (pauses, late compilations), how many of those that a loop has lie in the window, as a
-- share. Between n steps there are n - 1: where the thread works about as long (within a quarter, as for usual steps) before the first and behind the
-- last as between two, or launches about as often, whatever it waits for meanwhile, the window begins and ends with a whole step, and one interruption
-- is outside; passes of new shapes, which compile, launch as often without being a loop. Speaks of the thread interrupted for longest, and of what
-- lasts a tenth of the longest or more: a short one lies within a step.
CREATE TABLE seen_share AS
WITH interruption AS (
    SELECT 'pause' AS kind, source_id, pid, tid, start_ns, end_ns FROM pause
    UNION ALL SELECT 'compilation', source_id, pid, tid, start_ns, end_ns FROM compile_event WHERE is_late
),
of_thread AS (
    SELECT *, sum(end_ns - start_ns) OVER (PARTITION BY kind, source_id, pid, tid) AS all_ns FROM interruption
),
chosen AS (
    SELECT kind, source_id, pid, tid, start_ns, end_ns FROM (
        SELECT * FROM of_thread QUALIFY dense_rank() OVER (PARTITION BY kind ORDER BY all_ns DESC, source_id, pid, tid) = 1)
    QUALIFY 10 * (end_ns - start_ns) >= max(end_ns - start_ns) OVER (PARTITION BY kind)
),
between_two AS (
    SELECT kind, source_id, pid, tid, lag(end_ns, 1, from_ns) OVER (PARTITION BY kind ORDER BY start_ns) AS from_ns, start_ns AS until_ns,
        row_number() OVER (PARTITION BY kind ORDER BY start_ns) = 1 AS is_at_edge
    FROM chosen, steady_window
    UNION ALL SELECT kind, source_id, pid, tid, max(end_ns), any_value(until_ns), true FROM chosen, steady_window GROUP BY kind, source_id, pid, tid
),
launched AS (
    SELECT source_id, pid, tid, start_ns AS at_ns, row_number() OVER (PARTITION BY source_id, pid, tid ORDER BY start_ns, host_call_id) AS place
    FROM thread_call SEMI JOIN chosen USING (source_id, pid, tid) WHERE call_class IN ('launch', 'graph')
),
worked AS (
    SELECT kind, is_at_edge, between_two.until_ns - between_two.from_ns AS work_ns, coalesce(upto.place, 0) - coalesce(before.place, 0) AS launch_count
    FROM between_two
    ASOF LEFT JOIN launched AS upto ON between_two.source_id = upto.source_id AND between_two.pid = upto.pid AND between_two.tid = upto.tid
        AND upto.at_ns < between_two.until_ns
    ASOF LEFT JOIN launched AS before ON between_two.source_id = before.source_id AND between_two.pid = before.pid AND between_two.tid = before.tid
        AND before.at_ns < between_two.from_ns
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
