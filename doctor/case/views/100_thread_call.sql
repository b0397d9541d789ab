-- thread_call: the calls of launching threads inside the window, with the step they fall in and the launch-to-launch interval they belong to
-- (an interval ends with the call that launches device work).
-- step_kind: usual (a step with about the usual number of device operations), unusual (any other step, such as a prefill), NULL outside steps.
-- _step_op: device operations of each step. What runs before the first step of a process (a prefill) has a step_id below zero.
CREATE TABLE _step_op AS
SELECT op.device_op_id, op.family, op.signature, step.step_id
FROM (SELECT source_id, pid, device_op_id, called_ns, family, signature FROM _op_sequence) AS op
ASOF JOIN (
    SELECT step_id, source_id, pid, start_ns, end_ns FROM step
    UNION ALL
    SELECT -1 - row_number() OVER (ORDER BY source_id, pid), source_id, pid, from_ns - 1, min(start_ns)
    FROM step, steady_window GROUP BY source_id, pid, from_ns HAVING min(start_ns) > from_ns
) AS step ON op.source_id = step.source_id AND op.pid = step.pid AND op.called_ns >= step.start_ns
WHERE op.called_ns < step.end_ns;

CREATE TABLE _step_size AS
SELECT step_id, count(*) AS op_count FROM _step_op WHERE step_id >= 0 GROUP BY step_id;

DROP TABLE _op_sequence;

CREATE TYPE IF NOT EXISTS step_likeness AS ENUM ('usual', 'unusual');

-- usual_step: steps with about the usual number of device operations.
CREATE TABLE usual_step AS
WITH sized AS (
    SELECT step.step_id, source_id, pid, start_ns, end_ns, coalesce(op_count, 0) AS op_count,
        median(coalesce(op_count, 0)) OVER (PARTITION BY source_id, pid) AS usual_op_count
    FROM step LEFT JOIN _step_size USING (step_id)
)
SELECT step_id, source_id, pid, start_ns, end_ns, op_count
FROM sized
WHERE abs(op_count - usual_op_count) <= 0.25 * usual_op_count
ORDER BY step_id;

-- A call finds its step by the cell of time that both lie in: steps of a process do not overlap, and a join on equality needs no sort of millions.
CREATE TABLE thread_call AS
WITH launching AS (
    SELECT host_call_id, count(*) AS op_count FROM launch GROUP BY host_call_id
),
cell_size AS (
    SELECT greatest(median(end_ns - start_ns), (max(end_ns) - min(start_ns)) / 1000000, 1)::BIGINT AS width_ns FROM step
),
step_cell AS (
    SELECT step.step_id, source_id, pid, start_ns AS step_start_ns, end_ns AS step_end_ns,
        CASE WHEN usual_step.step_id IS NULL THEN 'unusual' ELSE 'usual' END::step_likeness AS step_kind,
        unnest(generate_series(start_ns // width_ns, (end_ns - 1) // width_ns)) AS cell
    FROM step LEFT JOIN (SELECT step_id FROM usual_step) AS usual_step USING (step_id), cell_size
),
inside AS (
    SELECT call.*, is_main, from_ns, start_ns // width_ns AS cell
    FROM host_call AS call JOIN (SELECT source_id, pid, tid, is_main FROM launching_thread) AS thread USING (source_id, pid, tid),
        steady_window, cell_size
    WHERE start_ns >= from_ns AND start_ns < until_ns
)
SELECT host_call_id, inside.source_id, inside.pid, tid, is_main, start_ns, end_ns, correlation_id, base_name, call_class, is_blocking_copy,
    -- NULL for a thread's first call and where the silence began before the window
    CASE WHEN start_ns - silence_ns >= from_ns THEN greatest(silence_ns, 0) END AS silence_ns,
    op_count IS NOT NULL AS is_launching, coalesce(op_count, 0) AS op_count, step_id, step_kind,
    count(op_count) OVER (
        PARTITION BY inside.source_id, inside.pid, tid ORDER BY host_call_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS interval_id
FROM inside
LEFT JOIN step_cell ON inside.source_id = step_cell.source_id AND inside.pid = step_cell.pid AND inside.cell = step_cell.cell
    AND start_ns >= step_start_ns AND start_ns < step_end_ns
LEFT JOIN launching USING (host_call_id)
ORDER BY host_call_id;

DROP TABLE _step_size;

-- launch_interval: one row a launch-to-launch interval of a launching thread, split by what the host did in it; `idle_ns` is how long the device
-- had been idle when the work that ends the interval began
CREATE TABLE _idle_before AS
SELECT host_call_id, sum(gap.end_ns - gap.start_ns) AS idle_ns
FROM device_gap AS gap JOIN launch ON launch.device_op_id = gap.next_device_op_id
GROUP BY host_call_id;

CREATE TABLE launch_interval AS
SELECT source_id, pid, tid, interval_id, min(start_ns - coalesce(silence_ns, 0)) AS start_ns, max(end_ns) AS end_ns,
    any_value(step_id) AS step_id, arg_max(host_call_id, host_call_id) AS last_host_call_id,
    coalesce(sum(silence_ns), 0)::BIGINT AS silence_ns, coalesce(max(silence_ns), 0)::BIGINT AS longest_silence_ns,
    coalesce(sum(end_ns - start_ns) FILTER (call_class = 'module'), 0)::BIGINT AS module_ns, count(*) FILTER (call_class = 'module') AS module_count,
    coalesce(sum(end_ns - start_ns) FILTER (call_class IN ('sync', 'alloc', 'copy') AND NOT is_launching), 0)::BIGINT AS waiting_ns,
    coalesce(sum(idle_ns), 0)::BIGINT AS idle_ns
FROM thread_call LEFT JOIN _idle_before USING (host_call_id)
GROUP BY source_id, pid, tid, interval_id
ORDER BY source_id, pid, tid, interval_id;

DROP TABLE _idle_before;

-- launch_pace: the usual silence before a launch and the usual time from launch to launch, per thread;
-- `pause_ns` is where an unusual silence begins: twenty usual ones, and at least 500 us
CREATE TABLE launch_pace AS
WITH paced AS (
    SELECT source_id, pid, tid, silence_ns, start_ns - lag(start_ns) OVER (PARTITION BY source_id, pid, tid ORDER BY host_call_id) AS interval_ns
    FROM thread_call WHERE is_launching
)
SELECT source_id, pid, tid, coalesce(median(silence_ns), 0)::BIGINT AS usual_silence_ns, coalesce(median(interval_ns), 0)::BIGINT AS usual_interval_ns,
    greatest(500000, 20 * coalesce(median(silence_ns), 0))::BIGINT AS pause_ns
FROM paced GROUP BY source_id, pid, tid
ORDER BY source_id, pid, tid;
