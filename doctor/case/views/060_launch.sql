-- launch: which call launched which device operation, joined by (source, process, correlation id); one call may launch many operations (a graph).
-- Reads the relations launched_op and launching (doctor.case.arrays.launches).
CREATE TABLE launch AS
SELECT device_op_id, host_call_id FROM launched_op;

-- launching_thread: threads that launched device work, most first within each process
CREATE TABLE launching_thread AS
SELECT source_id, pid, tid, op_count,
    row_number() OVER (PARTITION BY source_id, pid ORDER BY op_count DESC, tid) = 1 AS is_main
FROM launching
ORDER BY source_id, pid, op_count DESC, tid;
