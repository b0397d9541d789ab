-- profile_work: the sums of a profile by what they are of. Tables that sum different things belong together, the first of each kind, the second of
-- each (`run_id`), whether they stand in one text or in a file each.
CREATE TABLE profile_work AS
WITH told AS (
    SELECT profile_sum.*, text AS name, dense_rank() OVER (PARTITION BY report ORDER BY source_id, table_id) AS run_id,
        regexp_replace(text, '(_v\d+|_ptsz|_ptds)+$', '') AS call
    FROM profile_sum JOIN text ON text_id = name_id
)
SELECT run_id, report, told.name, name_id, call_count, total_ns, time_share, mean_ns, least_ns, most_ns, size_bytes, family, precision, coalesce(is_legacy, false) AS is_legacy,
    CASE WHEN report <> 'api' THEN NULL
        WHEN regexp_matches(call, '^(cudaLaunch(Kernel|CooperativeKernel|KernelEx)\w*|cuLaunch\w*)$') THEN 'launch'
        WHEN regexp_matches(call, '^cu(da)?GraphLaunch$') THEN 'graph_launch'
        WHEN regexp_matches(call, '^cu(da)?GraphInstantiate\w*$') THEN 'instantiate'
        WHEN regexp_matches(call, '^(cuda(Stream|Device|Thread|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize)$') THEN 'sync'
        WHEN regexp_matches(call, '^(cudaMemcpy\w*Async|cuMemcpy\w*Async)$') THEN 'copy'
        WHEN regexp_matches(call, '^(cudaMemcpy\w*|cuMemcpy\w*)$') THEN 'blocking_copy'
        WHEN regexp_matches(call, '^(cudaMalloc|cudaFree|cudaMallocPitch|cudaMallocManaged|cuMemAlloc|cuMemFree)$') THEN 'alloc'
        ELSE 'other'
    END AS call_class,
    CASE WHEN report NOT IN ('copy', 'size') THEN NULL
        WHEN regexp_matches(lower(told.name), 'htod|host-to-device|host to device') THEN 'h2d'
        WHEN regexp_matches(lower(told.name), 'dtoh|device-to-host|device to host') THEN 'd2h'
        ELSE 'other'
    END AS direction
FROM told LEFT JOIN kernel_name USING (name_id);

-- profile_total: one row a profile: what its sums can be compared by. `is_graphed`: kernels of graphs are launched by one call, or are hidden in it. `is_staged`:
-- calls that copy large pieces up take at least twice as long as the device copies: pageable memory is staged. Where no table tells of the device's side, a
-- call that neither returns at once nor waits for a whole step.
CREATE TABLE profile_total AS
WITH whole AS (
    -- a paste may lack rows: the largest one says which share of all it is
    SELECT run_id, report, greatest(sum(total_ns), max_by(total_ns / nullif(time_share, 0), total_ns))::BIGINT AS whole_ns
    FROM profile_work WHERE report IN ('kernel', 'api') AND total_ns > 0 GROUP BY ALL
),
total AS (
SELECT run_id, count(*) OVER () AS run_count,
    coalesce((SELECT whole_ns FROM whole WHERE report = 'kernel' AND whole.run_id = profile_work.run_id), 0)::BIGINT AS kernel_ns,
    coalesce(sum(total_ns) FILTER (report = 'kernel'), 0)::BIGINT AS listed_kernel_ns,
    coalesce(sum(call_count) FILTER (report = 'kernel'), 0)::BIGINT AS kernel_count,
    coalesce(sum(total_ns) FILTER (family = 'collective'), 0)::BIGINT AS collective_ns,
    coalesce(sum(call_count) FILTER (family = 'collective'), 0)::BIGINT AS collective_count,
    coalesce(sum(total_ns) FILTER (family = 'gemm'), 0)::BIGINT AS product_ns,
    coalesce(sum(total_ns) FILTER (precision IN ('fp32', 'fp64')), 0)::BIGINT AS wide_product_ns,
    coalesce(sum(call_count) FILTER (precision IN ('fp32', 'fp64')), 0)::BIGINT AS wide_product_count,
    arg_max(name, total_ns) FILTER (precision IN ('fp32', 'fp64')) AS wide_product_name,
    coalesce((SELECT whole_ns FROM whole WHERE report = 'api' AND whole.run_id = profile_work.run_id), 0)::BIGINT AS api_ns,
    coalesce(sum(total_ns) FILTER (call_class = 'launch'), 0)::BIGINT AS launch_ns,
    coalesce(sum(call_count) FILTER (call_class = 'launch'), 0)::BIGINT AS launch_count,
    coalesce(sum(total_ns) FILTER (call_class = 'sync'), 0)::BIGINT AS sync_ns,
    coalesce(sum(call_count) FILTER (call_class = 'sync'), 0)::BIGINT AS sync_count,
    coalesce(sum(total_ns) FILTER (call_class IN ('copy', 'blocking_copy')), 0)::BIGINT AS copy_call_ns,
    coalesce(sum(call_count) FILTER (call_class IN ('copy', 'blocking_copy')), 0)::BIGINT AS copy_call_count,
    coalesce(sum(call_count) FILTER (call_class = 'blocking_copy'), 0)::BIGINT AS blocking_copy_count,
    coalesce(sum(total_ns) FILTER (call_class = 'alloc'), 0)::BIGINT AS alloc_ns,
    coalesce(sum(call_count) FILTER (call_class = 'alloc'), 0)::BIGINT AS alloc_count,
    coalesce(sum(call_count) FILTER (call_class = 'graph_launch'), 0)::BIGINT AS graph_launch_count,
    coalesce(sum(call_count) FILTER (call_class = 'instantiate'), 0)::BIGINT AS instantiate_count,
    coalesce(sum(total_ns) FILTER (report = 'copy'), 0)::BIGINT AS device_copy_ns,
    coalesce(sum(total_ns) FILTER (report = 'copy' AND direction = 'h2d'), 0)::BIGINT AS h2d_ns,
    coalesce(sum(call_count) FILTER (report = 'copy' AND direction = 'h2d'), 0)::BIGINT AS h2d_count,
    coalesce(sum(call_count) FILTER (report = 'copy' AND direction = 'd2h'), 0)::BIGINT AS d2h_count,
    sum(size_bytes) FILTER (direction = 'h2d')::BIGINT AS h2d_bytes,
    coalesce(sum(call_count) FILTER (call_class = 'graph_launch'), 0) * 4 > coalesce(sum(call_count) FILTER (call_class = 'launch'), 0) AS is_graphed
FROM profile_work GROUP BY run_id
)
SELECT *,
    coalesce(copy_call_count >= 100 AND copy_call_ns >= 0.2 * api_ns AND (
        device_copy_ns > 0 AND copy_call_ns >= 2 * device_copy_ns AND h2d_ns >= 0.5 * device_copy_ns
            AND coalesce(h2d_bytes >= 65536 * h2d_count, h2d_ns >= 4000 * h2d_count)
        OR device_copy_ns = 0 AND copy_call_count >= 1000 AND copy_call_ns / copy_call_count BETWEEN 20000 AND 2000000), false) AS is_staged
FROM total ORDER BY run_id;
