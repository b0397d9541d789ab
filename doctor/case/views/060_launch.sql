-- launch: which call launched which device operation, joined by (source, process, correlation id); one call may launch many operations (a graph).
CREATE TABLE launch AS
WITH call AS (
    SELECT source_id, pid, correlation_id, min(host_call_id) AS host_call_id
    FROM (
        SELECT inner_call.source_id, inner_call.pid, inner_call.correlation_id, host_call.host_call_id
        FROM _api_call_numbered AS inner_call JOIN host_call USING (source_id, pid, tid, place)
        WHERE inner_call.correlation_id IS NOT NULL
    )
    GROUP BY ALL
)
SELECT device_op_id, host_call_id
FROM device_op JOIN call USING (source_id, pid, correlation_id)
ORDER BY device_op_id;

DROP TABLE _api_call_numbered;
DROP TABLE _api_call_nested;

-- launching_thread: threads that launched device work, most first within each process
CREATE TABLE launching_thread AS
SELECT source_id, pid, tid, count(*) AS op_count,
    row_number() OVER (PARTITION BY source_id, pid ORDER BY count(*) DESC, tid) = 1 AS is_main
FROM launch JOIN host_call USING (host_call_id)
GROUP BY source_id, pid, tid
ORDER BY source_id, pid, op_count DESC, tid;
