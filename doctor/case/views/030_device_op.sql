-- device_op: everything that occupies a device, in order of start: kernels, copies, memory sets, and whole graph launches (a graph_trace row
-- hides the kernels inside it: it is busy time, never idle). Times are on the case's clock,
-- put right where the recorder's clocks of host and device lie apart.
-- What repeats in every row is an enumeration, and rows are sorted once: a case may hold millions.
CREATE TYPE IF NOT EXISTS work_kind AS ENUM ('kernel', 'memcpy', 'memset', 'graph');
CREATE TYPE IF NOT EXISTS copy_direction AS ENUM ('htod', 'dtoh', 'dtod', 'htoh', 'ptop');
CREATE TYPE IF NOT EXISTS memory_place AS ENUM ('pageable', 'pinned', 'device', 'array', 'managed');

CREATE TABLE device_op AS
WITH op AS (
    SELECT source_id, pid, device_id, stream_id, 'kernel'::work_kind AS kind, start_ns, end_ns,
        correlation_id, graph_node_id, coalesce(name_id, short_name_id) AS name_id,
        grid_x::BIGINT * grid_y * grid_z AS grid_blocks, block_x::BIGINT * block_y * block_z AS block_threads, NULL::BIGINT AS size_bytes,
        NULL::copy_direction AS copy_kind,
        NULL::memory_place AS src_kind,
        NULL::memory_place AS dst_kind
    FROM kernel
    UNION ALL
    SELECT source_id, pid, device_id, stream_id, 'memcpy'::work_kind, start_ns, end_ns,
        correlation_id, graph_node_id, NULL, NULL, NULL, size_bytes,
        try_cast(copy_kind AS copy_direction),
        try_cast(src_kind AS memory_place),
        try_cast(dst_kind AS memory_place)
    FROM memcpy
    UNION ALL
    SELECT source_id, pid, device_id, stream_id, 'memset'::work_kind, start_ns, end_ns,
        correlation_id, graph_node_id, NULL, NULL, NULL, size_bytes, NULL, NULL, NULL
    FROM memset
    UNION ALL
    SELECT source_id, pid, device_id, stream_id, 'graph'::work_kind, start_ns, end_ns,
        correlation_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM graph_trace
),
in_order AS (
    SELECT op.source_id, op.pid, coalesce(op.device_id, 0) AS device_id, coalesce(op.stream_id, 0) AS stream_id, op.kind,
        op.start_ns + shift_ns - coalesce(late_ns, 0) AS start_ns,
        greatest(op.end_ns, op.start_ns) + shift_ns - coalesce(late_ns, 0) AS end_ns,
        op.correlation_id, op.graph_node_id, op.name_id, coalesce(kernel_name.family, op.kind::work_family) AS family, kernel_name.precision,
        op.grid_blocks, op.block_threads, op.size_bytes, op.copy_kind, op.src_kind, op.dst_kind
    FROM op
    JOIN timeline_source USING (source_id)
    LEFT JOIN device_clock USING (source_id)
    LEFT JOIN kernel_name USING (name_id)
    WHERE op.start_ns IS NOT NULL AND op.end_ns IS NOT NULL
    ORDER BY op.start_ns + shift_ns - coalesce(late_ns, 0), op.end_ns, op.source_id, op.stream_id
)
SELECT row_number() OVER () - 1 AS device_op_id, * FROM in_order;
