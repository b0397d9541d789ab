-- steady_window: the part of the recording that the diagnosis speaks of, one row.
-- From the first launch of device work to the end of the last, less (1) a stray event that stands alone behind a gap longer than everything
-- else, (2) the load phase: whatever ran before the first compute kernel, where it takes more than a twentieth of the time. The table
-- `window_request`, filled from the options, replaces all of that.
-- Reads the relations quiet_time (times in which no device of the case worked) and called_op (when the launch of each operation was called) of
-- doctor.case.arrays.
CREATE TABLE IF NOT EXISTS window_request (start_ns BIGINT, end_ns BIGINT, chosen_by TEXT);

-- stray_gap: a gap of at least half the recording with under one hundredth of the work on one side
CREATE TABLE stray_gap AS
WITH span AS (
    SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM device_op
),
left_cut AS (
    SELECT quiet_time.*, 'before' AS side FROM quiet_time, span
    WHERE quiet_time.end_ns - quiet_time.start_ns >= 0.5 * (span.end_ns - span.start_ns) AND busy_before_ns < 0.01 * busy_ns
    ORDER BY quiet_time.end_ns DESC LIMIT 1
),
right_cut AS (
    SELECT quiet_time.*, 'after' AS side
    FROM quiet_time, span, (SELECT coalesce((SELECT end_ns FROM left_cut), (SELECT start_ns FROM span)) AS from_ns)
    WHERE quiet_time.end_ns - quiet_time.start_ns >= 0.5 * (span.end_ns - from_ns) AND busy_after_ns < 0.01 * busy_ns AND quiet_time.start_ns > from_ns
    ORDER BY quiet_time.start_ns LIMIT 1
),
idle AS (
    SELECT sum(end_ns - start_ns) AS idle_ns FROM quiet_time
)
SELECT start_ns, end_ns, side, (end_ns - start_ns) / idle_ns AS share_of_idle,
    least(busy_before_ns, busy_after_ns) / busy_ns AS share_of_work_cut
FROM (SELECT * FROM left_cut UNION ALL SELECT * FROM right_cut), idle
ORDER BY start_ns;

CREATE TABLE steady_window AS
WITH unstrayed AS (
    SELECT coalesce((SELECT end_ns FROM stray_gap WHERE side = 'before'), min(start_ns)) AS start_ns,
        coalesce((SELECT start_ns FROM stray_gap WHERE side = 'after'), max(end_ns)) AS end_ns
    FROM device_op
),
-- processes that do a tenth of the work or more; until the last of them begins, the others wait for it in a collective
worker AS (
    SELECT min(op.start_ns) AS first_ns FROM device_op AS op, unstrayed
    WHERE op.start_ns >= unstrayed.start_ns AND op.end_ns <= unstrayed.end_ns
    GROUP BY op.source_id, op.pid HAVING count(*) >= 0.1 * (SELECT count(*) FROM device_op)
),
kept AS (
    SELECT CASE WHEN last_first_ns - first_first_ns > 0.05 * (unstrayed.end_ns - unstrayed.start_ns)
            THEN last_first_ns ELSE unstrayed.start_ns END AS start_ns,
        coalesce(last_first_ns - first_first_ns > 0.05 * (unstrayed.end_ns - unstrayed.start_ns), false) AS is_start_cut,
        unstrayed.end_ns
    FROM unstrayed, (SELECT min(first_ns) AS first_first_ns, max(first_ns) AS last_first_ns FROM worker)
),
first_compute AS (
    SELECT min(device_op.start_ns) AS start_ns
    FROM device_op, kept
    WHERE family IN ('gemm', 'attention', 'graph', 'collective') AND device_op.start_ns >= kept.start_ns AND device_op.end_ns <= kept.end_ns
),
first_op AS (
    SELECT CASE WHEN first_compute.start_ns - kept.start_ns > 0.05 * (kept.end_ns - kept.start_ns)
            THEN first_compute.start_ns ELSE kept.start_ns END AS start_ns,
        coalesce(first_compute.start_ns - kept.start_ns > 0.05 * (kept.end_ns - kept.start_ns), false) AS is_load_cut,
        kept.is_start_cut, kept.end_ns
    FROM kept, first_compute
),
-- the first operation of each device starts its window when its launch was called
called AS (
    SELECT min(called_ns) AS start_ns
    FROM first_op
    JOIN device_op ON device_op.start_ns = first_op.start_ns
    JOIN called_op USING (device_op_id)
),
steady AS (
    -- a call from before a stray gap belongs to what was cut
    SELECT CASE WHEN first_op.start_ns - called.start_ns <= 0.05 * (first_op.end_ns - first_op.start_ns)
            THEN called.start_ns ELSE first_op.start_ns END AS start_ns, first_op.end_ns,
        concat_ws(', ', 'first launch to last device work',
            CASE WHEN (SELECT count(*) > 0 FROM stray_gap) THEN 'stray event cut' END,
            CASE WHEN is_start_cut THEN 'from where every process works' END,
            CASE WHEN is_load_cut THEN 'load phase cut' END) AS chosen_by
    FROM first_op, called
    WHERE first_op.start_ns IS NOT NULL
)
SELECT start_ns AS from_ns, end_ns AS until_ns, chosen_by FROM window_request
UNION ALL
SELECT start_ns, end_ns, chosen_by FROM steady WHERE NOT EXISTS (SELECT 1 FROM window_request);

-- A recording in which nothing takes any time still has a window: of one nanosecond, so that shares of it exist.
UPDATE steady_window SET until_ns = from_ns + 1 WHERE until_ns <= from_ns;
