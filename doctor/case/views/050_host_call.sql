-- host_call: outermost API calls of each thread in order of start; a driver call inside a runtime call belongs to the runtime call.
-- `silence_ns` is the time since the thread's earlier calls ended (NULL for its first).
CREATE TABLE _call AS
SELECT *, coalesce(start_ns >= busy_until_ns, true) AS is_outermost
FROM (
    SELECT source_id, pid, tid, api_call.start_ns + shift_ns AS start_ns, coalesce(end_ns, api_call.start_ns) + shift_ns AS end_ns,
        correlation_id, name_id,
        shift_ns + max(coalesce(end_ns, api_call.start_ns)) OVER (
            PARTITION BY source_id, pid, tid ORDER BY api_call.start_ns, end_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy_until_ns
    FROM api_call JOIN timeline_source USING (source_id)
    WHERE api_call.start_ns IS NOT NULL
);

CREATE TABLE host_call AS
WITH in_order AS (
    SELECT source_id, pid, tid, start_ns, end_ns, correlation_id, name_id, base_name, call_class, is_blocking_copy, start_ns - busy_until_ns AS silence_ns
    FROM _call JOIN call_name USING (name_id)
    WHERE is_outermost
    ORDER BY start_ns, source_id, pid, tid, end_ns
)
SELECT row_number() OVER () - 1 AS host_call_id, * FROM in_order;
