-- device_gap: maximal times inside the window in which a device did nothing, and the operation that ended each.
-- device_busy: how each device spent the window, by union of intervals: concurrent streams count once.
-- _reached: until when the device was busy before each operation: with anything, with a kernel, with a kernel that computes
CREATE TABLE _reached AS
WITH inside AS (
    SELECT device_op_id, source_id, device_id, greatest(start_ns, from_ns) AS start_ns, least(end_ns, until_ns) AS end_ns,
        family NOT IN ('memcpy', 'memset') AS is_kernel, family NOT IN ('memcpy', 'memset', 'collective') AS is_compute
    FROM device_op, steady_window
    WHERE end_ns > from_ns AND start_ns < until_ns
)
SELECT *, max(end_ns) OVER earlier AS busy_until_ns, max(CASE WHEN is_kernel THEN end_ns END) OVER earlier AS kernel_until_ns,
    max(CASE WHEN is_compute THEN end_ns END) OVER earlier AS compute_until_ns
FROM inside
WINDOW earlier AS (PARTITION BY source_id, device_id ORDER BY device_op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING);

CREATE TABLE device_gap AS
SELECT source_id, device_id, coalesce(busy_until_ns, from_ns) AS start_ns, start_ns AS end_ns, device_op_id AS next_device_op_id
FROM _reached, steady_window
WHERE start_ns > coalesce(busy_until_ns, from_ns)
ORDER BY source_id, device_id, start_ns;

CREATE TABLE device_busy AS
WITH summed AS (
    SELECT source_id, device_id,
        coalesce(sum(greatest(end_ns - greatest(start_ns, coalesce(busy_until_ns, start_ns)), 0)), 0)::BIGINT AS busy_ns,
        coalesce(sum(greatest(end_ns - greatest(start_ns, coalesce(kernel_until_ns, start_ns)), 0)) FILTER (is_kernel), 0)::BIGINT AS kernel_ns,
        coalesce(sum(greatest(end_ns - greatest(start_ns, coalesce(compute_until_ns, start_ns)), 0)) FILTER (is_compute), 0)::BIGINT AS compute_ns
    FROM _reached GROUP BY source_id, device_id
)
SELECT source_id, device_id, busy_ns, until_ns - from_ns - busy_ns AS idle_ns, compute_ns,
    kernel_ns - compute_ns AS exposed_communication_ns, busy_ns - kernel_ns AS exposed_copy_ns
FROM summed, steady_window
ORDER BY source_id, device_id;

DROP TABLE _reached;
