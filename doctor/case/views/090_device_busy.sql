-- device_gap: maximal times inside the window in which a device did nothing, the operation that ended each, and when the call had returned that
-- launched it; NULL where that is not known or was no launch, copy or memory set of its own.
-- device_busy: how each device spent the window, by union of intervals: concurrent streams count once.
-- Reads the relations idle_time and busy_time (doctor.case.arrays.operations); `kernel_ns` and `compute_ns` are unions of kernels and of those that
-- do not communicate.
CREATE TABLE device_gap AS
SELECT source_id, device_id, start_ns, end_ns, next_device_op_id, launched_ns FROM idle_time;

CREATE TABLE device_busy AS
SELECT source_id, device_id, busy_ns, until_ns - from_ns - busy_ns AS idle_ns, compute_ns,
    kernel_ns - compute_ns AS exposed_communication_ns, busy_ns - kernel_ns AS exposed_copy_ns
FROM busy_time, steady_window
ORDER BY source_id, device_id;
