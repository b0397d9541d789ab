-- step_work: device time of each step by family of work, summed over operations (concurrent streams count twice). Work belongs to the step that
-- launched it. `rows_blocks` is the number of thread blocks: for kernels that give each row a block of its own it grows with the rows of a step.
-- Reads the relation work_of_step (doctor.case.arrays.steps).
CREATE TABLE step_work AS
SELECT step_id, source_id, pid, family::work_family AS family, op_count, device_ns, rows_blocks FROM work_of_step
ORDER BY step_id, family;
