-- sampled_launch: some 20,000 launches of kernels, which tell as much as five million. `is_blocking` where the call returns after the kernel's end, as
-- under CUDA_LAUNCH_BLOCKING=1; a kernel that seems to start within 3 us of its call, the driver's part and the device's, is one of clocks that
-- disagree, and may not have ended within the call either.
CREATE TABLE _taken AS
SELECT device_op_id, host_call_id FROM launch
WHERE hash(device_op_id) % (SELECT greatest(1, count(*) // 20000)::UBIGINT FROM launch) = 0;

CREATE TABLE sampled_launch AS
SELECT call.start_ns, call.end_ns, call.end_ns - call.start_ns AS call_ns, op.end_ns - op.start_ns AS kernel_ns,
    call.end_ns >= op.end_ns AND op.start_ns >= call.start_ns + 3000 AS is_blocking
FROM _taken JOIN device_op AS op USING (device_op_id) JOIN thread_call AS call USING (host_call_id)
WHERE call_class = 'launch' AND op.kind = 'kernel'
ORDER BY call.start_ns, call.end_ns;

DROP TABLE _taken;
