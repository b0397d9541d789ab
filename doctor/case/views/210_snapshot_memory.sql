-- snapshot_memory: what a memory snapshot holds on each device. Free memory counts as pinned where its segment also holds a live block, so that it
-- cannot be given back; segments that grow in place have no such holes, and a wholly free segment is given back before an allocation fails.
CREATE TABLE snapshot_memory AS
WITH held AS (
    SELECT source_id, device_id, segment_id,
        sum(size_bytes) FILTER (block_state <> 'inactive') AS live_bytes,
        sum(size_bytes) FILTER (block_state = 'inactive') AS free_bytes,
        max(size_bytes) FILTER (block_state = 'inactive') AS largest_free_bytes
    FROM allocator_block GROUP BY ALL
),
failed AS (
    SELECT source_id, device_id, arg_max(size_bytes, step_id) AS requested_bytes, arg_max(free_bytes, step_id) AS driver_free_bytes
    FROM allocator_step WHERE action = 'oom' GROUP BY ALL
),
memory AS (
    SELECT source_id, device_id, count(*) AS segment_count,
        sum(total_bytes)::BIGINT AS reserved_bytes,
        coalesce(sum(live_bytes), sum(active_bytes), 0)::BIGINT AS live_bytes,
        coalesce(sum(free_bytes) FILTER (live_bytes > 0 AND NOT is_expandable), 0)::BIGINT AS pinned_free_bytes,
        coalesce(max(largest_free_bytes) FILTER (live_bytes > 0 AND NOT is_expandable), 0)::BIGINT AS largest_pinned_bytes,
        coalesce(sum(free_bytes) FILTER (coalesce(live_bytes, 0) = 0), 0)::BIGINT AS releasable_bytes,
        coalesce(sum(total_bytes) FILTER (is_private_pool), 0)::BIGINT AS private_pool_bytes,
        coalesce(sum(total_bytes) FILTER (is_expandable), 0)::BIGINT AS expandable_bytes
    FROM allocator_segment LEFT JOIN held USING (source_id, device_id, segment_id)
    GROUP BY ALL
),
size AS (
    -- the card's size is not in a snapshot: another piece of evidence tells it
    SELECT max(total_bytes) AS total_bytes FROM (
        SELECT max(total_bytes) AS total_bytes FROM oom_event
        UNION ALL SELECT max(memory_total_bytes) FROM gpu_sample
        UNION ALL SELECT max(memory_bytes) FROM device
    )
)
SELECT memory.*, requested_bytes, driver_free_bytes, coalesce(total_bytes, reserved_bytes + coalesce(driver_free_bytes, 0))::BIGINT AS total_bytes,
    total_bytes IS NOT NULL AS is_total_known
FROM memory LEFT JOIN failed USING (source_id, device_id), size
ORDER BY source_id, device_id;

-- block_group: live blocks of one size made by one stack (by any, where the history was not recorded), the largest groups first.
CREATE TABLE block_group AS
SELECT block.source_id, block.device_id, size_bytes, text AS stack, count(*) AS block_count, sum(size_bytes)::BIGINT AS group_bytes,
    min(allocated_ns) AS first_ns, max(allocated_ns) AS last_ns,
    coalesce(regexp_matches(text, '(?i)allocate_kv_cache|initialize_kv_cache|init_memory_pool|_create_buffers|TokenToKVPool|block_pool|paged'), false)
        AS is_paged_pool,
    coalesce(regexp_matches(text, 'StaticCache|SlidingWindowCache|StaticLayer|early_initialization|lazy_initialization|_get_cache|_prepare_static_cache'), false)
        AS is_static_cache
FROM allocator_block AS block LEFT JOIN text ON text_id = stack_id
WHERE block_state <> 'inactive'
GROUP BY ALL
ORDER BY group_bytes DESC, size_bytes DESC;

-- memory_by_stack: what fills memory: live blocks by the stack that made them, with their age at the end of the history.
CREATE TABLE memory_by_stack AS
WITH span AS (
    SELECT source_id, device_id, max(time_ns) AS end_ns FROM allocator_step GROUP BY ALL
),
held AS (
    SELECT block.source_id, block.device_id, text AS stack, count(*) AS block_count, sum(size_bytes)::BIGINT AS held_bytes,
        (max(end_ns) - median(allocated_ns))::BIGINT AS age_ns, (max(end_ns) - min(allocated_ns))::BIGINT AS oldest_ns
    FROM allocator_block AS block LEFT JOIN text ON text_id = stack_id LEFT JOIN span USING (source_id, device_id)
    WHERE block_state <> 'inactive'
    GROUP BY ALL
)
SELECT *, held_bytes / sum(held_bytes) OVER (PARTITION BY source_id, device_id) AS share_of_live
FROM held
ORDER BY held_bytes DESC, stack;

-- reserved_cache: the group of equal blocks that is a key and value cache kept whole for every request: two blocks a layer and request, so several
-- times as many as any weight of the model has copies; a paged pool has one or two blocks a layer in all.
CREATE TABLE reserved_cache AS
WITH candidate AS (
    SELECT *, row_number() OVER (PARTITION BY source_id, device_id ORDER BY group_bytes DESC) AS size_place
    FROM block_group WHERE size_bytes >= 2 ** 20 AND NOT is_paged_pool
),
layers AS (
    SELECT source_id, device_id, gcd(min(block_count), max(block_count)) AS layer_count
    FROM candidate WHERE size_place > 1 AND block_count BETWEEN 8 AND 512
    GROUP BY ALL HAVING count(*) >= 2
)
SELECT candidate.source_id, candidate.device_id, size_bytes, block_count, group_bytes, stack,
    CASE WHEN layer_count >= 4 THEN layer_count END AS layer_count,
    CASE WHEN layer_count >= 4 THEN floor(block_count / (2.0 * layer_count)) END AS slot_count,
    group_bytes / total_bytes AS share_of_total, total_bytes
FROM candidate LEFT JOIN layers USING (source_id, device_id) JOIN snapshot_memory USING (source_id, device_id)
WHERE size_place = 1
    AND CASE WHEN layer_count >= 4 THEN block_count >= 4 * layer_count ELSE block_count >= 256 END
ORDER BY candidate.source_id, candidate.device_id;
