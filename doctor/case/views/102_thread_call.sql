-- thread_call: the calls of launching threads inside the window, with the step they fall in and the launch-to-launch interval they belong to
-- (an interval ends with the call that launches device work). `silence_ns` is NULL for a thread's first call and where the silence began before
-- the window.
-- step_kind: usual (a step with about the usual number of device operations), unusual (any other step, such as a prefill), NULL outside steps.
-- Reads the relation call_in_window (doctor.case.arrays.intervals).
CREATE TYPE IF NOT EXISTS step_likeness AS ENUM ('usual', 'unusual');

CREATE TABLE thread_call AS
SELECT host_call_id, source_id, pid, tid, is_main, start_ns, end_ns, correlation_id, base_name::call_function AS base_name,
    call_class::call_kind AS call_class, is_blocking_copy, silence_ns, is_launching, op_count::BIGINT AS op_count, step_id::BIGINT AS step_id,
    step_kind::step_likeness AS step_kind, interval_id::BIGINT AS interval_id
FROM call_in_window;
