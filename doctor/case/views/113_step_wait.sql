-- step_wait: calls of usual steps that wait for the device: synchronisations, and copies to the host that bring a few bytes into pageable memory.
CREATE TABLE step_wait AS
WITH copied AS MATERIALIZED (
    SELECT host_call_id FROM device_op JOIN launch USING (device_op_id)
    WHERE kind = 'memcpy' AND copy_kind = 'dtoh' AND size_bytes <= 65536 AND coalesce(dst_kind, 'pageable') = 'pageable'
),
behind_copy AS MATERIALIZED (  -- waits that complete a large pageable copy belong to that copy
    SELECT DISTINCT call.source_id, call.pid, call.tid, call.interval_id + 1 AS interval_id
    FROM device_op JOIN launch USING (device_op_id) JOIN thread_call AS call USING (host_call_id)
    WHERE kind = 'memcpy' AND size_bytes > 65536 AND 'pageable' IN (src_kind, dst_kind)
),
wait AS MATERIALIZED (
    SELECT host_call_id, end_ns - start_ns AS dur_ns, call_class, start_ns, end_ns
    FROM thread_call ANTI JOIN behind_copy USING (source_id, pid, tid, interval_id)
    WHERE step_kind = 'usual' AND call_class = 'sync'
    UNION ALL
    SELECT host_call_id, end_ns - start_ns, call_class, start_ns, end_ns
    FROM thread_call JOIN copied USING (host_call_id)
    WHERE step_kind = 'usual' AND call_class <> 'sync'
)
SELECT * FROM wait ORDER BY host_call_id;
