-- memory_trend: whether memory rises steadily. A series is cut into 40 pieces of equally many entries and the least of each piece is taken, which is
-- the level between steps; the first fifth is warm-up. `series` says what was measured: allocator (snapshot history), profiler (events of a trace),
-- process (a process on a device), device, host (resident memory of a process).
CREATE TABLE memory_trend AS
WITH series AS (
    SELECT 'allocator' AS series, source_id, device_id, NULL::BIGINT AS pid, step_id AS place, time_ns, allocated_bytes AS level_bytes
    FROM allocator_step WHERE action IN ('alloc', 'free')
    UNION ALL
    SELECT 'profiler', source_id, device_id, pid, row_number() OVER (PARTITION BY source_id, device_id, pid ORDER BY time_ns), time_ns, allocated_bytes
    FROM allocator_event WHERE allocated_bytes IS NOT NULL AND device_id IS NOT NULL
    UNION ALL
    SELECT 'process', source_id, device_id, pid, look_id, time_ns, memory_bytes FROM gpu_process WHERE memory_bytes IS NOT NULL
    UNION ALL
    SELECT 'device', source_id, device_id, NULL, look_id, time_ns, memory_used_bytes FROM gpu_sample WHERE memory_used_bytes IS NOT NULL
    UNION ALL
    SELECT 'host', source_id, NULL, pid, row_number() OVER (PARTITION BY source_id, pid ORDER BY time_ns), time_ns, resident_bytes
    FROM host_process WHERE resident_bytes IS NOT NULL AND time_ns IS NOT NULL
),
piece AS (
    SELECT *, ntile(40) OVER (PARTITION BY series, source_id, device_id, pid ORDER BY place) AS piece FROM series
),
level AS (
    SELECT series, source_id, device_id, pid, piece, min(level_bytes) AS level_bytes, min(time_ns) AS start_ns, max(time_ns) AS end_ns
    FROM piece GROUP BY ALL
),
warm AS (
    SELECT *, count(*) OVER (PARTITION BY series, source_id, device_id, pid) AS pieces FROM level
)
SELECT series, source_id, device_id, pid, count(*) AS piece_count, regr_r2(level_bytes, piece) AS fit_share,
    (regr_slope(level_bytes, piece) * (max(piece) - min(piece)))::BIGINT AS growth_bytes,
    min(level_bytes)::BIGINT AS least_bytes, max(level_bytes)::BIGINT AS most_bytes, (max(end_ns) - min(start_ns))::BIGINT AS span_ns
FROM warm WHERE piece > pieces / 5
GROUP BY ALL HAVING count(*) >= 16
ORDER BY series, source_id, device_id, pid;

-- lasting_stack: stacks whose blocks, made while the history was recorded, are alive at its end, by what they hold; a leak is among the first.
CREATE TABLE lasting_stack AS
WITH span AS (
    SELECT source_id, device_id, min(time_ns) AS start_ns, max(time_ns) AS end_ns FROM allocator_step GROUP BY ALL
)
SELECT block.source_id, block.device_id, text AS stack, count(*) AS block_count, sum(size_bytes)::BIGINT AS held_bytes,
    (max(allocated_ns) - min(allocated_ns)) / nullif(max(end_ns) - min(start_ns), 0) AS share_of_history
FROM allocator_block AS block JOIN span USING (source_id, device_id) LEFT JOIN text ON text_id = stack_id
WHERE block_state <> 'inactive' AND allocated_ns >= start_ns
GROUP BY ALL
ORDER BY held_bytes DESC, stack;
