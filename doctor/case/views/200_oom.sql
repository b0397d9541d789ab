-- oom: failures to allocate, each told once, with what follows from their figures: who held the memory, and how much of it the failing process
-- could still have used. A text without `this process` is of a container or of an old PyTorch: the process that holds about what PyTorch says is
-- the failing one itself; where none is listed, its context is taken as 1.5 GiB. Memory nobody is listed for is foreign all the same. A text that lists nobody
-- at all (`is_accounted` false) is of an old PyTorch, or of Windows, where the driver cannot be asked; only Windows shows all of a card's memory as its
-- size, a whole number of GiB. A snapshot's history does not tell it: where nothing else does, it is what the allocator held and what was free. Only there more can be allocated than the device has (`is_spilled`), unless memory is managed.
CREATE TABLE oom AS
WITH told AS (
    SELECT *,
        coalesce(reserved_unallocated_bytes, reserved_bytes - allocated_bytes) AS unused_bytes,
        -- a driver that cannot see into a container counts nothing for the process that holds all
        CASE WHEN own_process_bytes >= 0.98 * coalesce(allocated_bytes, 0) THEN own_process_bytes END AS counted_own_bytes,
        row_number() OVER (
            PARTITION BY source_id, device_id, text_form, tried_bytes, total_bytes, free_bytes, allocated_bytes, rank,
                CASE WHEN tried_bytes IS NULL THEN phase END
            ORDER BY (phase IS NULL)::INTEGER, (stack_id IS NULL)::INTEGER, oom_event_id
        ) AS told_place,
        min(line_id) OVER (
            PARTITION BY source_id, device_id, text_form, tried_bytes, total_bytes, free_bytes, allocated_bytes, rank,
                CASE WHEN tried_bytes IS NULL THEN phase END
        ) AS first_line_id
    FROM (SELECT * REPLACE (CASE WHEN text_form = 'snapshot' THEN coalesce(known_bytes, reserved_bytes + free_bytes) ELSE total_bytes END AS total_bytes),
            text_form IS DISTINCT FROM 'snapshot' OR known_bytes IS NOT NULL AS is_size_told
        FROM oom_event, (SELECT coalesce((SELECT max(memory_total_bytes) FROM gpu_sample), (SELECT max(memory_bytes) FROM device)) AS known_bytes))
),
event AS (
    -- the driver's bare words repeat what the allocator has said with figures, and so does a snapshot beside the text
    SELECT * FROM told AS one
    WHERE told_place = 1
        AND (text_form IS DISTINCT FROM 'snapshot' OR NOT EXISTS (
            SELECT 1 FROM told AS other WHERE other.text_form IS DISTINCT FROM 'snapshot' AND other.tried_bytes IS NOT NULL))
        AND (tried_bytes IS NOT NULL OR text_form = 'guard' OR NOT EXISTS (
            SELECT 1 FROM told AS other WHERE other.source_id = one.source_id AND other.total_bytes IS NOT NULL))
),
listed AS (
    SELECT event.source_id, event.oom_event_id, process.pid, process.memory_bytes,
        -- an engine that allocates outside PyTorch and is the only one listed is the failing one too
        event.counted_own_bytes IS NULL AND (event.framework = 'tensorrt-llm' AND event.allocated_bytes < 0.05 * process.memory_bytes
            AND count(*) OVER (PARTITION BY event.source_id, event.oom_event_id) = 1
            OR abs(process.memory_bytes - (event.allocated_bytes + coalesce(event.unused_bytes, 0)))
                <= greatest(2 * 2 ** 30, 0.1 * (event.allocated_bytes + coalesce(event.unused_bytes, 0)))
            AND process.memory_bytes >= 0.98 * event.allocated_bytes
            AND row_number() OVER (
                PARTITION BY event.source_id, event.oom_event_id
                ORDER BY abs(process.memory_bytes - (event.allocated_bytes + coalesce(event.unused_bytes, 0)))
            ) = 1) AS is_own
    FROM event JOIN oom_process AS process USING (source_id, oom_event_id)
),
-- processes of the run that its log calls down, that ps shows stuck or without a parent, or the kernel has ended
ended AS (
    SELECT pid FROM lost_process WHERE is_worker OR process_state IN ('D', 'Z', 'X') UNION SELECT pid FROM kernel_log_event WHERE event_kind = 'oom_kill' AND pid IS NOT NULL
),
others AS (
    SELECT source_id, oom_event_id,
        coalesce(sum(memory_bytes) FILTER (NOT is_own AND pid IN (SELECT pid FROM ended)), 0)::BIGINT AS ended_bytes,
        max(pid) FILTER (NOT is_own AND pid IN (SELECT pid FROM ended)) AS ended_id,
        max(memory_bytes) FILTER (is_own) AS own_listed_bytes, max(pid) FILTER (is_own) AS own_listed_id,
        coalesce(sum(memory_bytes) FILTER (NOT is_own), 0) AS named_foreign_bytes,
        count(*) FILTER (NOT is_own) AS named_foreign_count,
        count(*) FILTER (NOT is_own AND memory_bytes BETWEEN 0.2 * 2 ** 30 AND 1.2 * 2 ** 30) AS context_count,
        arg_max(pid, memory_bytes) FILTER (NOT is_own) AS largest_foreign_id,
        max(memory_bytes) FILTER (NOT is_own) AS largest_foreign_bytes
    FROM listed GROUP BY ALL
),
machine AS (
    SELECT EXISTS (SELECT 1 FROM host_sample WHERE operating_system IN ('windows', 'wsl'))
        OR EXISTS (SELECT 1 FROM gpu_sample WHERE driver_model = 'wddm') AS is_windows_machine
),
sized AS (
    SELECT event.*, others.* EXCLUDE (source_id, oom_event_id),
        coalesce(event.counted_own_bytes, own_listed_bytes) IS NOT NULL AS is_own_known,
        coalesce(event.counted_own_bytes, own_listed_bytes,
            -- the asynchronous allocator does not say what its pool holds: all that is not free may be its own
            CASE WHEN event.text_form = 'async' THEN total_bytes - free_bytes END,
            allocated_bytes + unused_bytes + 1.5 * 2 ** 30) AS own_bytes
    FROM event LEFT JOIN others USING (source_id, oom_event_id)
)
SELECT source_id, oom_event_id, line_id, first_line_id, framework, device_id, pid, rank, text_form, phase, hot_spot, is_serving, text AS stack,
    tried_bytes, total_bytes, is_size_told, free_bytes, allocated_bytes, unused_bytes::BIGINT AS unused_bytes, private_pool_bytes, own_process_bytes, allowed_bytes,
    own_process_bytes IS NOT NULL OR coalesce(named_foreign_count, 0) > 0 OR own_listed_id IS NOT NULL OR allowed_bytes IS NOT NULL
        OR text_form IS NOT DISTINCT FROM 'snapshot' AS is_accounted,
    coalesce(NOT is_accounted AND abs(total_bytes / 2 ** 30 - round(total_bytes / 2 ** 30)) < 0.02, false)
        OR is_windows_machine AS is_windows,
    own_bytes::BIGINT AS own_bytes, is_own_known, own_listed_id, own_listed_bytes,
    coalesce(named_foreign_count, 0) AS named_foreign_count, coalesce(context_count, 0) AS context_count, largest_foreign_id, largest_foreign_bytes,
    coalesce(ended_bytes, 0) AS ended_bytes, ended_id,
    -- the run had been started again before it failed, or this process wrote the log as well: what it holds may be the run's own
    coalesce(line_id > (SELECT min(line_id) FROM engine_event WHERE event = 'restarted' AND engine_event.source_id = sized.source_id), false) AS is_restarted,
    coalesce(largest_foreign_id IN (SELECT pid FROM oom_event WHERE pid IS NOT NULL UNION SELECT pid FROM memory_refusal WHERE pid IS NOT NULL), false)
        AS is_of_this_run,
    coalesce(named_foreign_bytes, 0)::BIGINT AS named_foreign_bytes,
    greatest(coalesce(named_foreign_bytes, 0), coalesce(total_bytes - free_bytes - own_bytes, 0), 0)::BIGINT AS foreign_bytes,
    CASE WHEN is_own_known THEN greatest(own_bytes - allocated_bytes - coalesce(unused_bytes, 0), 0) END::BIGINT AS outside_bytes,
    is_windows AND coalesce(allocated_bytes + coalesce(unused_bytes, 0) > 1.02 * total_bytes, false) AS is_spilled,
    coalesce(
        allocated_bytes + coalesce(unused_bytes, 0) + tried_bytes > allowed_bytes,
        free_bytes - tried_bytes >= greatest(256 * 2 ** 20, 0.02 * total_bytes),
        false
    ) AS is_capped
FROM sized CROSS JOIN machine LEFT JOIN text ON text_id = stack_id
ORDER BY source_id, oom_event_id;
