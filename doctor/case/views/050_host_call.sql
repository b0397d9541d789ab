-- host_call: outermost API calls of each thread in order of start; a driver call inside a runtime call belongs to the runtime call.
-- `silence_ns` is the time since the thread's earlier calls ended (NULL for its first).
-- Reads the relation outermost_call (doctor.case.arrays.calls).
CREATE TABLE host_call AS
SELECT host_call_id, source_id, pid, tid, start_ns, end_ns, correlation_id, name_id, base_name::call_function AS base_name,
    call_class::call_kind AS call_class, is_blocking_copy, silence_ns
FROM outermost_call;
