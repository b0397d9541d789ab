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
