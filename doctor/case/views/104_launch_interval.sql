-- launch_interval: one row a launch-to-launch interval of a launching thread, split by what the host did in it; `idle_ns` is how long the device
-- had been idle when the work that ends the interval began
-- Reads the relations interval and pace (doctor.case.arrays.intervals).
CREATE TABLE launch_interval AS
SELECT source_id, pid, tid, interval_id, start_ns, end_ns, step_id::BIGINT AS step_id, last_host_call_id, silence_ns, longest_silence_ns, module_ns,
    module_count, waiting_ns, idle_ns
FROM interval;

-- launch_pace: the usual silence before a launch and the usual time from launch to launch, per thread;
-- `pause_ns` is where an unusual silence begins: twenty usual ones, and at least 500 us
CREATE TABLE launch_pace AS
SELECT source_id, pid, tid, coalesce(silence_ns, 0)::BIGINT AS usual_silence_ns, coalesce(interval_ns, 0)::BIGINT AS usual_interval_ns,
    greatest(500000, 20 * coalesce(silence_ns, 0))::BIGINT AS pause_ns
FROM pace
ORDER BY source_id, pid, tid;
