-- launch: which call launched which device operation, joined by (source, process, correlation id); one call may launch many operations (a graph).
-- _launched: the same with the start of the call
CREATE TABLE _launched AS
WITH inner_call AS (
    SELECT source_id, pid, tid, start_ns, correlation_id FROM _call
    WHERE NOT is_outermost AND correlation_id IS NOT NULL AND pid IS NOT NULL AND tid IS NOT NULL
),
outer_call AS (
    SELECT host_call_id, source_id, pid, tid, start_ns FROM host_call
    WHERE EXISTS (SELECT 1 FROM inner_call)  -- few recorders write both, and finding the outer call costs a sort
),
call AS (
    SELECT source_id, pid, correlation_id, host_call_id, start_ns AS called_ns FROM host_call
    WHERE correlation_id IS NOT NULL AND pid IS NOT NULL AND tid IS NOT NULL
    UNION ALL
    SELECT inner_call.source_id, inner_call.pid, inner_call.correlation_id, host_call_id, outer_call.start_ns
    FROM inner_call ASOF JOIN outer_call ON inner_call.source_id = outer_call.source_id AND inner_call.pid = outer_call.pid
        AND inner_call.tid = outer_call.tid AND inner_call.start_ns >= outer_call.start_ns
)
SELECT device_op_id, min(host_call_id) AS host_call_id, min(called_ns) AS called_ns
FROM device_op JOIN call USING (source_id, pid, correlation_id)
GROUP BY device_op_id
ORDER BY device_op_id;

CREATE TABLE launch AS
SELECT device_op_id, host_call_id FROM _launched;

DROP TABLE _call;

-- launching_thread: threads that launched device work, most first within each process
CREATE TABLE launching_thread AS
SELECT source_id, pid, tid, count(*) AS op_count,
    row_number() OVER (PARTITION BY source_id, pid ORDER BY count(*) DESC, tid) = 1 AS is_main
FROM launch JOIN host_call USING (host_call_id)
GROUP BY source_id, pid, tid
ORDER BY source_id, pid, op_count DESC, tid;
