-- graph_capture: times of the window in which a launching thread made a CUDA graph anew: from the call that begins the capture to the end of the
-- instantiation. What is launched meanwhile is written down and does not run, so that all of it lies in one launch-to-launch interval.
-- `prepared_host_call_id` is the wait for the device with which torch.cuda.graph begins, before it collects garbage, empties the cache and fills the
-- state of the random generator (two launches).
CREATE TABLE graph_capture AS
WITH edge AS (
    SELECT *, contains(base_name::VARCHAR, 'BeginCapture') AS is_begin, contains(base_name::VARCHAR, 'Instantiate') AS is_instantiation
    FROM thread_call WHERE call_class = 'capture' AND regexp_matches(base_name::VARCHAR, 'BeginCapture|EndCapture|Instantiate')
),
begun AS (  -- a graph that was put together by hand is instantiated without a capture
    SELECT *, is_begin OR is_instantiation AND coalesce(lag(is_instantiation) OVER thread, true) AS is_first
    FROM edge WINDOW thread AS (PARTITION BY source_id, pid, tid ORDER BY host_call_id)
),
numbered AS (
    SELECT *, count(*) FILTER (is_first) OVER (PARTITION BY source_id, pid, tid ORDER BY host_call_id) AS capture_place FROM begun
),
capture AS (
    SELECT source_id, pid, tid, min(interval_id) AS interval_id, min(step_id) AS step_id, min(host_call_id) AS first_host_call_id,
        max(host_call_id) AS last_host_call_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, bool_or(is_instantiation) AS is_instantiated
    FROM numbered WHERE capture_place > 0 GROUP BY source_id, pid, tid, capture_place
)
SELECT capture.*, coalesce((
    SELECT max(host_call_id) FROM thread_call AS call
    WHERE call.source_id = capture.source_id AND call.pid = capture.pid AND call.tid = capture.tid
        AND call.interval_id BETWEEN capture.interval_id - 2 AND capture.interval_id AND base_name = 'cudaDeviceSynchronize' AND host_call_id < first_host_call_id), first_host_call_id) AS prepared_host_call_id
FROM capture
ORDER BY source_id, pid, tid, first_host_call_id;
