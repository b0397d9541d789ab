-- host_call: outermost API calls of each thread in order of start; a driver call inside a runtime call belongs to the runtime call.
-- `silence_ns` is the time since the thread's previous call ended (NULL for its first).
CREATE TABLE _api_call_nested AS
SELECT source_id, pid, tid, start_ns + shift_ns AS start_ns, coalesce(end_ns, start_ns) + shift_ns AS end_ns, correlation_id, name_id,
    coalesce(api_call.start_ns >= max(coalesce(end_ns, start_ns)) OVER (
        PARTITION BY source_id, pid, tid ORDER BY start_ns, end_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS is_outermost
FROM api_call JOIN timeline_source USING (source_id)
WHERE start_ns IS NOT NULL;

CREATE TABLE _api_call_numbered AS
SELECT *, sum(is_outermost::INTEGER) OVER (PARTITION BY source_id, pid, tid ORDER BY start_ns, end_ns DESC ROWS UNBOUNDED PRECEDING) AS place
FROM _api_call_nested;

CREATE TABLE host_call AS
SELECT row_number() OVER (ORDER BY start_ns, source_id, pid, tid, place) - 1 AS host_call_id,
    source_id, pid, tid, start_ns, end_ns, correlation_id, name_id, base_name, call_class, is_blocking_copy, place,
    start_ns - lag(end_ns) OVER (PARTITION BY source_id, pid, tid ORDER BY place) AS silence_ns
FROM _api_call_numbered JOIN call_name USING (name_id)
WHERE is_outermost
ORDER BY host_call_id;
