-- device_op: everything that occupies a device, in order of start: kernels, copies, memory sets, and whole graph launches (a graph_trace row
-- hides the kernels inside it: it is busy time, never idle). Times are on the case's clock,
-- put right where the recorder's clocks of host and device lie apart.
-- Reads the relation ordered_work (doctor.case.arrays.work_order).
CREATE TABLE device_op AS
SELECT device_op_id, source_id, pid, device_id, stream_id, kind::work_kind AS kind, start_ns, end_ns, correlation_id, graph_node_id, name_id,
    family::work_family AS family, precision::work_precision AS precision, grid_blocks, block_threads, size_bytes,
    copy_kind::copy_direction AS copy_kind, src_kind::memory_place AS src_kind, dst_kind::memory_place AS dst_kind
FROM ordered_work;
