-- usual_step: steps with about the usual number of device operations.
-- Reads the relation step_size (doctor.case.arrays.steps): device operations of each step.
CREATE TABLE usual_step AS
WITH sized AS (
    SELECT step.step_id, source_id, pid, start_ns, end_ns, coalesce(op_count, 0) AS op_count,
        median(coalesce(op_count, 0)) OVER (PARTITION BY source_id, pid) AS usual_op_count
    FROM step LEFT JOIN step_size USING (step_id)
)
SELECT step_id, source_id, pid, start_ns, end_ns, op_count
FROM sized
WHERE abs(op_count - usual_op_count) <= 0.25 * usual_op_count
ORDER BY step_id;
