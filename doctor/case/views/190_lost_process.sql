-- lost_process: processes that ps or /proc shows stuck, dead, or without a parent. In a container the server itself may be pid 1: then its workers have
-- a living parent. `is_worker` tells by its name a process that an engine, a loader or a launcher has started, which never runs on its own.
CREATE TABLE lost_process AS
WITH ps AS (
    SELECT coalesce(bool_or(pid = 1 AND regexp_matches(lower(name), '^(python|vllm|sglang|uvicorn|gunicorn|ray|triton|trtllm|text-generation|lmdeploy|torchrun)')), false)
        AS is_served
    FROM host_process
)
SELECT pid, any_value(name) AS name, coalesce(max(process_state) FILTER (process_state IN ('D', 'Z', 'X')), any_value(process_state)) AS process_state,
    coalesce(bool_or(parent_pid = 1) AND NOT any_value(is_served), false) AS is_orphan,
    coalesce(bool_or(regexp_matches(lower(name), 'worker|enginecore|scheduler|detokenizer|^ray::|multiprocess|spawn|tp_?rank|modelrunner')), false) AS is_worker
FROM host_process, ps GROUP BY pid
HAVING max(process_state) FILTER (process_state IN ('D', 'Z', 'X')) IS NOT NULL OR is_orphan
ORDER BY pid;
