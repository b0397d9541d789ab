-- compile_event: times of the window in which a launching thread compiled code: frames of Dynamo and Inductor and tuning of Triton kernels where
-- the recording names them (annotations, operators, Python frames), otherwise launch-to-launch intervals of 10 ms or more in which a freshly
-- compiled image was loaded: Triton and Inductor use cuModuleLoad..., libraries cuLibraryLoadData. `step_place` counts the steps of a process
-- from 1; step and place are NULL between steps, as when tuning repeats a kernel so often that it looks like the step. What every call of
-- compiled code does (cache look-ups, running a compiled region) is no compilation. `is_late` leaves out warm-up: torch.compile specialises at the
-- first call and generalises at the second. Late is what comes from the third step on, or between steps as long as a compiler takes (Inductor
-- needs 1.5 to 2.6 s a shape on an H200, loading from its cache under 60 ms), or in any step where three quarters of the steps, and at least
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
    FROM launch_interval AS interval
    JOIN (SELECT DISTINCT source_id, pid, tid, interval_id FROM thread_call WHERE base_name LIKE 'cuModuleLoad%')
        USING (source_id, pid, tid, interval_id)
    WHERE interval.end_ns - interval.start_ns >= 10000000 AND NOT EXISTS (SELECT 1 FROM named)
),
counted_step AS (
    SELECT *, row_number() OVER (PARTITION BY source_id, pid ORDER BY start_ns) AS step_place FROM step
),
placed AS (
    SELECT event.*, if(event.start_ns < step.end_ns, step_id, NULL) AS step_id, if(event.start_ns < step.end_ns, step_place, NULL) AS step_place
    FROM (SELECT event.* FROM event, steady_window WHERE start_ns < until_ns AND end_ns > from_ns) AS event
    ASOF LEFT JOIN counted_step AS step
        ON event.source_id = step.source_id AND event.pid = step.pid AND event.start_ns >= step.start_ns
),
share AS (
    SELECT source_id, pid, count(DISTINCT placed.step_id) AS compiling_count, (SELECT count(*) FROM step WHERE (step.source_id, step.pid) = (placed.source_id, placed.pid)) AS step_count
    FROM placed GROUP BY source_id, pid
)
SELECT placed.*, coalesce(step_place > 2, end_ns - start_ns >= 100000000)
    OR (step_id IS NOT NULL AND compiling_count >= greatest(3, 0.75 * step_count)) AS is_late
FROM placed JOIN share USING (source_id, pid)
ORDER BY start_ns, source_id, tid;

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
