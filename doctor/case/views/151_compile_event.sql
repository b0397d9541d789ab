-- compile_event: times inside steps in which a launching thread compiled code: frames of Dynamo and Inductor and tuning of Triton kernels where
-- the recording names them (annotations, operators, Python frames), otherwise launch-to-launch intervals of 10 ms or more in which a freshly
-- compiled image was loaded. `step_place` counts the steps of a process from 1. What every call of compiled code does (cache look-ups, running
-- a compiled region) is no compilation.
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
    JOIN (SELECT DISTINCT source_id, pid, tid, interval_id FROM thread_call WHERE base_name LIKE 'cuModuleLoadData%')
        USING (source_id, pid, tid, interval_id)
    WHERE interval.end_ns - interval.start_ns >= 10000000 AND NOT EXISTS (SELECT 1 FROM named)
),
counted_step AS (
    SELECT *, row_number() OVER (PARTITION BY source_id, pid ORDER BY start_ns) AS step_place FROM step
)
SELECT event.*, step_id, step_place
FROM event ASOF JOIN counted_step AS step
    ON event.source_id = step.source_id AND event.pid = step.pid AND event.start_ns >= step.start_ns
WHERE event.start_ns < step.end_ns
ORDER BY event.start_ns, event.source_id, event.tid;
