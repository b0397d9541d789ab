-- device_gap: maximal times inside the window in which a device did nothing, and the operation that ended each.
-- device_busy: how each device spent the window, by union of intervals: concurrent streams count once.
CREATE TABLE _in_window AS
SELECT device_op_id, source_id, device_id, family, kind, greatest(start_ns, from_ns) AS start_ns, least(end_ns, until_ns) AS end_ns
FROM device_op, steady_window
WHERE end_ns > from_ns AND start_ns < until_ns;

CREATE TABLE device_gap AS
WITH edged AS (
    SELECT source_id, device_id, device_op_id, start_ns,
        coalesce(max(end_ns) OVER (PARTITION BY source_id, device_id ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            from_ns) AS idle_from_ns
    FROM _in_window, steady_window
)
SELECT source_id, device_id, idle_from_ns AS start_ns, start_ns AS end_ns, device_op_id AS next_device_op_id
FROM edged
WHERE start_ns > idle_from_ns
ORDER BY source_id, device_id, start_ns;

CREATE TABLE device_busy AS
WITH grouped AS (
    SELECT source_id, device_id, start_ns, end_ns, true AS is_any, family NOT IN ('memcpy', 'memset') AS is_kernel,
        family NOT IN ('memcpy', 'memset', 'collective') AS is_compute
    FROM _in_window
),
fresh AS (
    SELECT source_id, device_id, 'any' AS what, end_ns - greatest(start_ns, coalesce(max(end_ns) OVER (
        PARTITION BY source_id, device_id ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns)) AS fresh_ns
    FROM grouped
    UNION ALL
    SELECT source_id, device_id, 'kernel', end_ns - greatest(start_ns, coalesce(max(end_ns) OVER (
        PARTITION BY source_id, device_id ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns))
    FROM grouped WHERE is_kernel
    UNION ALL
    SELECT source_id, device_id, 'compute', end_ns - greatest(start_ns, coalesce(max(end_ns) OVER (
        PARTITION BY source_id, device_id ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), start_ns))
    FROM grouped WHERE is_compute
),
summed AS (
    SELECT source_id, device_id,
        coalesce(sum(greatest(fresh_ns, 0)) FILTER (what = 'any'), 0)::BIGINT AS busy_ns,
        coalesce(sum(greatest(fresh_ns, 0)) FILTER (what = 'kernel'), 0)::BIGINT AS kernel_ns,
        coalesce(sum(greatest(fresh_ns, 0)) FILTER (what = 'compute'), 0)::BIGINT AS compute_ns
    FROM fresh GROUP BY source_id, device_id
)
SELECT source_id, device_id, busy_ns, until_ns - from_ns - busy_ns AS idle_ns, compute_ns,
    kernel_ns - compute_ns AS exposed_communication_ns, busy_ns - kernel_ns AS exposed_copy_ns
FROM summed, steady_window
ORDER BY source_id, device_id;

DROP TABLE _in_window;
