-- launching_call: all that the host did to launch each operation by itself: the calls of the launch-to-launch interval that its launch ends; `is_quick`
-- where the silence before the call is no pause. A launch that goes takes these with it.
CREATE VIEW launching_call AS
SELECT device_op_id, call.host_call_id, coalesce(call.silence_ns <= pause_ns, false) AS is_quick
FROM launch JOIN thread_call AS launching USING (host_call_id)
JOIN thread_call AS call USING (source_id, pid, tid, interval_id)
JOIN launch_pace USING (source_id, pid, tid)
WHERE launching.call_class IN ('launch', 'copy', 'memset') AND call.call_class IN ('launch', 'copy', 'memset', 'event', 'other');
