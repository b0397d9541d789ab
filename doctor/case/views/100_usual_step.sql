-- usual_step: steps with about the usual number of device operations.
-- Reads the relations step_size (device operations of each step) and step_span (when each began and ended with all that was launched before) of
-- doctor.case.arrays.steps.
UPDATE step SET start_ns = step_span.start_ns, end_ns = step_span.end_ns FROM step_span WHERE step.step_id = step_span.step_id;

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
