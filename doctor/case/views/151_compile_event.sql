-- compile_event: times of the window in which a launching thread compiled code: frames of Dynamo and Inductor and tuning of Triton kernels where
-- the recording names them (annotations, operators, Python frames), otherwise launch-to-launch intervals of 10 ms or more in which a freshly
-- compiled image was loaded: Triton and Inductor use cuModuleLoad..., libraries cuLibraryLoadData. `step_place` counts the steps of a process
-- from 1; step and place are NULL between steps, as when tuning repeats a kernel so often that it looks like the step. What every call of
-- compiled code does (cache look-ups, running a compiled region) is no compilation. `is_late` leaves out warm-up: torch.compile specialises at the
-- first call and generalises at the second. Late is what comes from the third step on, or between steps as long as a compiler takes (Inductor
-- needs 1.5 to 2.6 s a shape on an H200, loading from its cache under 60 ms), or anywhere where three quarters of the steps, and at least
-- three, compile: such a recording shows no state without.
CREATE TABLE compile_event AS
WITH compiling AS (
    SELECT text_id, text AS name FROM text
    WHERE regexp_matches(text, '\(dynamo_timed\)|^(entire_frame_compile|backend_compile|inductor_compile|compile_fx_inner|fx_codegen_and_compile)\b'
        || '|torch/_dynamo/convert_frame\.py\(\d+\): (_compile|compile_inner)$|torch/_inductor/compile_fx\.py\(\d+\): compile_fx(_inner)?$'
        || '|triton_heuristics\.py\(\d+\): (benchmark_all_configs|_precompile_config)$|triton/compiler/compiler\.py\(\d+\): compile$'
        || '|triton/runtime/(autotuner\.py\(\d+\): _bench|jit\.py\(\d+\): _do_compile)$')
),
named AS (
    SELECT source_id, pid, tid, start_ns + shift_ns AS start_ns, end_ns + shift_ns AS end_ns, name
    FROM (
        SELECT source_id, pid, tid, start_ns, end_ns, name_id FROM nvtx_range
        UNION ALL SELECT source_id, pid, tid, start_ns, end_ns, name_id FROM host_op
    ) JOIN compiling ON text_id = name_id JOIN timeline_source USING (source_id)
    WHERE end_ns - start_ns >= 1000000
),
edged AS (
    SELECT *, coalesce(start_ns >= max(end_ns) OVER (
        PARTITION BY source_id, pid, tid ORDER BY start_ns, end_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS is_outermost
    FROM named
),
event AS (
    SELECT source_id, pid, tid, start_ns, end_ns, name AS seen_as, true AS is_named FROM edged WHERE is_outermost
    UNION ALL
    SELECT source_id, pid, tid, interval.start_ns, interval.end_ns, 'loading of compiled images', false
    FROM long_interval AS interval
    JOIN (SELECT DISTINCT source_id, pid, tid, interval_id FROM thread_call WHERE base_name LIKE 'cuModuleLoad%')
        USING (source_id, pid, tid, interval_id)
    WHERE interval.end_ns - interval.start_ns >= 10000000 AND NOT EXISTS (SELECT 1 FROM named)
),
counted_step AS (
    SELECT *, row_number() OVER (PARTITION BY source_id, pid ORDER BY host_start_ns) AS step_place FROM step
),
placed AS (
    SELECT event.*, if(event.start_ns < host_end_ns, step_id, NULL) AS step_id, if(event.start_ns < host_end_ns, step_place, NULL) AS step_place
    FROM (SELECT event.* FROM event, steady_window WHERE start_ns < until_ns AND end_ns > from_ns) AS event
    ASOF LEFT JOIN counted_step AS step
        ON event.source_id = step.source_id AND event.pid = step.pid AND event.start_ns >= host_start_ns
),
share AS (
    SELECT source_id, pid, count(DISTINCT placed.step_id) AS compiling_count, (SELECT count(*) FROM step WHERE (step.source_id, step.pid) = (placed.source_id, placed.pid)) AS step_count
    FROM placed GROUP BY source_id, pid
)
SELECT placed.*, coalesce(step_place > 2, end_ns - start_ns >= 100000000)
    OR compiling_count >= greatest(3, 0.75 * step_count) AS is_late
FROM placed JOIN share USING (source_id, pid)
ORDER BY start_ns, source_id, tid;

-- tuning_run: launch-to-launch intervals in which kernels are tried out between two late compilations that nothing names. A trial lies between two
-- timing events: one launch, or a copy of the arguments and a launch. Trials follow each other with fills and warm-up between them, and never hold a
-- graph; a first call, a wait and fills come before them.
CREATE TABLE tuning_run AS
WITH late AS (
    SELECT source_id, pid, tid, start_ns FROM compile_event WHERE is_late AND NOT is_named
),
stamped AS (
    SELECT source_id, pid, tid, interval_id, min(start_ns) AS start_ns
    FROM thread_call SEMI JOIN late USING (source_id, pid, tid) WHERE contains(base_name::VARCHAR, 'EventRecord') GROUP BY ALL
),
trial AS (
    SELECT *, lead(interval_id) OVER (PARTITION BY source_id, pid, tid ORDER BY interval_id) AS stopped_id
    FROM stamped QUALIFY stopped_id <= interval_id + 2
),
run AS (
    SELECT trial.source_id, trial.pid, trial.tid, min(interval_id) - 4 AS first_interval_id, max(stopped_id) AS last_interval_id, count(*) AS trial_count
    FROM trial ASOF LEFT JOIN late ON late.source_id = trial.source_id AND late.pid = trial.pid AND late.tid = trial.tid AND trial.start_ns >= late.start_ns
    GROUP BY trial.source_id, trial.pid, trial.tid, late.start_ns
)
SELECT source_id, pid, tid, first_interval_id, last_interval_id
FROM run
WHERE trial_count >= 10 AND trial_count >= 0.125 * (last_interval_id - first_interval_id)
    AND (source_id, pid, tid, first_interval_id) NOT IN (
        SELECT source_id, pid, tid, first_interval_id
        FROM (SELECT source_id, pid, tid, first_interval_id, unnest(range(first_interval_id, last_interval_id + 1)) AS interval_id FROM run)
        SEMI JOIN (SELECT source_id, pid, tid, interval_id FROM thread_call WHERE call_class = 'graph') USING (source_id, pid, tid, interval_id))
ORDER BY source_id, pid, tid, first_interval_id;

-- library_load: code_load without what is a recompilation, where there are enough of these to be a cause of their own
CREATE TABLE library_load AS
WITH late AS (SELECT * FROM compile_event WHERE is_late)
SELECT load.*
FROM code_load AS load
WHERE (SELECT count(*) FROM late) < 3 OR NOT EXISTS (
    SELECT 1 FROM compile_event AS event WHERE event.source_id = load.source_id AND event.pid = load.pid AND event.tid = load.tid
        AND event.start_ns < load.end_ns AND event.end_ns > load.start_ns
)
ORDER BY source_id, pid, tid, interval_id;
