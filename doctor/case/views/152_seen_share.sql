-- seen_share: by kind of interruption of a launching thread (pauses, late compilations), how many of those that a loop has lie in the window, as a
-- share. Between n steps there are n - 1: where the thread works about as long (within a quarter, as for usual steps) before the first and behind the
-- last as between two, the window begins and ends with a whole step, and one interruption is outside. Speaks of the thread interrupted for longest.
CREATE TABLE seen_share AS
WITH interruption AS (
    SELECT 'pause' AS kind, source_id, pid, tid, start_ns, end_ns FROM pause
    UNION ALL SELECT 'compilation', source_id, pid, tid, start_ns, end_ns FROM compile_event WHERE is_late
),
of_thread AS (
    SELECT *, sum(end_ns - start_ns) OVER (PARTITION BY kind, source_id, pid, tid) AS all_ns FROM interruption
),
chosen AS (
    SELECT kind, start_ns, end_ns FROM of_thread QUALIFY dense_rank() OVER (PARTITION BY kind ORDER BY all_ns DESC, source_id, pid, tid) = 1
),
worked AS (
    SELECT kind, start_ns - lag(end_ns, 1, from_ns) OVER (PARTITION BY kind ORDER BY start_ns) AS work_ns,
        row_number() OVER (PARTITION BY kind ORDER BY start_ns) = 1 AS is_at_edge
    FROM chosen, steady_window
    UNION ALL SELECT kind, until_ns - max(end_ns), true FROM chosen, steady_window GROUP BY kind, until_ns
),
usual AS (
    SELECT kind, median(work_ns) FILTER (NOT is_at_edge) AS work_ns, count(*) AS worked_count FROM worked GROUP BY kind
)
SELECT kind, if(coalesce(bool_and(edge.work_ns BETWEEN 0.75 * usual.work_ns AND 1.25 * usual.work_ns), false), 1 - 1 / any_value(worked_count),
    1.0)::DOUBLE AS seen_share
FROM worked AS edge JOIN usual USING (kind)
WHERE is_at_edge
GROUP BY kind
ORDER BY kind;
