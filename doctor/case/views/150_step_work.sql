-- step_work: device time of each step by family of work, summed over operations (concurrent streams count twice). Work belongs to the step that
-- launched it. `rows_blocks` is the number of thread blocks: for kernels that give each row a block of its own it grows with the rows of a step.
CREATE TABLE step_work AS
SELECT call.step_id, op.source_id, op.pid, op.family, count(*) AS op_count, sum(op.end_ns - op.start_ns)::BIGINT AS device_ns,
    coalesce(sum(op.grid_blocks), 0)::BIGINT AS rows_blocks
FROM (SELECT host_call_id, step_id FROM thread_call WHERE is_launching AND step_id IS NOT NULL) AS call
JOIN launch USING (host_call_id)
JOIN device_op AS op USING (device_op_id)
GROUP BY call.step_id, op.source_id, op.pid, op.family
ORDER BY call.step_id, op.family;
