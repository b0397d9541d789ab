-- host_call: outermost API calls of each thread in order of start; a driver call inside a runtime call belongs to the runtime call.
-- `silence_ns` is the time since the thread's earlier calls ended (NULL for its first). Calls of launching threads inside the window have the step
-- they fall in and the launch-to-launch interval they belong to (an interval ends with the call that launches device work).
-- step_kind: usual (a step with about the usual number of device operations), unusual (any other step, such as a prefill), NULL outside steps.
-- Reads the relation outermost_call (doctor.case.arrays.intervals).
CREATE TABLE host_call AS
SELECT host_call_id, source_id, pid, tid, is_main, start_ns, end_ns, correlation_id, name_id, base_name::call_function AS base_name,
    call_class::call_kind AS call_class, is_blocking_copy, silence_ns, op_count::BIGINT AS op_count, step_id::BIGINT AS step_id,
    step_kind::step_likeness AS step_kind, interval_id::BIGINT AS interval_id
FROM outermost_call;

-- thread_call: the calls of launching threads inside the window. Their `silence_ns` is NULL also where the silence began before the window.
CREATE VIEW thread_call AS
SELECT host_call_id, source_id, pid, tid, is_main, start_ns, end_ns, correlation_id, base_name, call_class, is_blocking_copy,
    CASE WHEN start_ns - silence_ns >= (SELECT from_ns FROM steady_window) THEN silence_ns END AS silence_ns, op_count > 0 AS is_launching, op_count,
    step_id, step_kind, interval_id
FROM host_call
WHERE interval_id IS NOT NULL;

-- Steps told by repeating work alone may be the layers of one pass. They are steps where the host waits in most of them, exchanges data with the
-- device or launches a CUDA graph: nothing else is known of them in a trace without annotations.
UPDATE step SET chosen_by = 'repeating work'
FROM (
    SELECT source_id, pid FROM step LEFT JOIN (
        SELECT step_id, true AS is_met FROM host_call WHERE step_id IS NOT NULL AND call_class IN ('sync', 'graph')
        UNION
        SELECT step_id, true FROM (SELECT device_op_id FROM device_op WHERE kind = 'memcpy' AND copy_kind IN ('htod', 'dtoh'))
            JOIN launch USING (device_op_id) JOIN host_call USING (host_call_id) WHERE step_id IS NOT NULL
    ) USING (step_id)
    GROUP BY source_id, pid HAVING count(is_met) >= 0.5 * count(*)
) AS bounded
WHERE step.source_id = bounded.source_id AND step.pid = bounded.pid AND chosen_by = 'repeating work, maybe layers';
