-- rank_pair: pairs of ranks of one communicator on one host that exchange data, with the way they do it and how their devices are wired.
CREATE TABLE rank_pair AS
WITH member AS (
    SELECT communicator, rank, node_id, pid, coalesce(nvml_device_id, device_id) AS device_id, device_id AS cuda_device_id FROM nccl_rank WHERE rank IS NOT NULL
),
talking AS (
    SELECT DISTINCT node_id, pid, from_rank, to_rank, transport, detail, is_gpu_direct FROM nccl_connection WHERE from_rank <> to_rank
)
SELECT DISTINCT talking.from_rank, talking.to_rank, transport, detail, talking.is_gpu_direct, a.device_id, b.device_id AS peer_device_id, gpu_link.link_kind,
    gpu_link.nvlink_count
FROM talking
LEFT JOIN member AS a ON a.rank = talking.from_rank AND a.pid = talking.pid AND a.node_id = talking.node_id
LEFT JOIN member AS b ON b.rank = talking.to_rank AND b.communicator IS NOT DISTINCT FROM a.communicator
LEFT JOIN gpu_link ON gpu_link.device_id = a.device_id AND gpu_link.peer_device_id = b.device_id
ORDER BY talking.from_rank, talking.to_rank;

-- parallel_plan: over how many devices a layer is spread, as far as any evidence says so: settings, benchmark, communicator, recorded ranks. One row.
CREATE TABLE parallel_plan AS
WITH asked AS (
    SELECT max(told_count) FILTER (setting = 'tensor_parallel') AS tensor_parallel_count, max(told_count) FILTER (setting = 'pipeline_parallel') AS pipeline_parallel_count,
        max(told_count) FILTER (setting = 'data_parallel') AS data_parallel_count
    FROM engine_choice
),
joined AS (
    SELECT max(world_size) AS rank_count, max(node_count) AS node_count, count(DISTINCT node_id) AS seen_node_count,
        max(local_rank_count) AS local_rank_count FROM nccl_rank
),
recorded AS (
    SELECT count(DISTINCT (source_id, pid, device_id)) AS recorded_rank_count, count(*) AS collective_count
    FROM device_op WHERE family = 'collective'
),
told AS (
    SELECT max(world_size) AS world_size FROM source
)
SELECT asked.*, joined.*, recorded.*, told.world_size,
    coalesce(tensor_parallel_count, CASE WHEN coalesce(pipeline_parallel_count, 1) = 1 AND coalesce(data_parallel_count, 1) = 1 THEN rank_count END,
        CASE WHEN collective_count > 0 THEN greatest(recorded_rank_count, coalesce(world_size, 0)) END) AS width_count
FROM asked, joined, recorded, told
ORDER BY 1;

-- wiring: how the devices of a layer are connected, the worst pair first to be looked at: one row, or none where nothing of that is known.
CREATE TABLE wiring AS
WITH used AS (
    SELECT greatest(coalesce(width_count, 0), 0) AS width_count FROM parallel_plan
),
drawn AS (
    -- where the devices are not named, the first ones of the matrix are those in use
    SELECT gpu_link.* FROM gpu_link, used
    WHERE peer_device_id IS NOT NULL AND (width_count < 2 OR (device_id < width_count AND peer_device_id < width_count))
),
matrix AS (
    SELECT count(*) FILTER (link_kind IS NOT NULL) AS pair_count, count(*) FILTER (link_kind = 'nv') AS nvlink_pair_count,
        count(*) FILTER (link_kind IN ('sys', 'node', 'phb')) AS slow_pair_count, min(nvlink_count) AS nvlink_count,
        arg_max(upper(link_kind), CASE link_kind WHEN 'sys' THEN 6 WHEN 'node' THEN 5 WHEN 'phb' THEN 4 WHEN 'pxb' THEN 3 WHEN 'pix' THEN 2 ELSE 1 END) AS worst_kind,
        count(*) FILTER (peer_access IS NOT NULL AND peer_access NOT IN ('ok', 'unknown')) AS refused_pair_count,
        any_value(peer_access) FILTER (peer_access NOT IN ('ok', 'unknown')) AS peer_access
    FROM drawn
),
carried AS (
    SELECT count(*) AS connection_count, count(*) FILTER (transport = 'shm') AS shm_count, count(*) FILTER (transport = 'p2p') AS p2p_count,
        count(*) FILTER (transport = 'net') AS net_count
    FROM (SELECT DISTINCT from_rank, to_rank, transport FROM nccl_connection)
),
chosen AS (
    SELECT coalesce(bool_or(name = 'NCCL_P2P_DISABLE' AND value = '1'), false) OR EXISTS (SELECT 1 FROM engine_setting
            WHERE setting = 'p2p_off' AND told IN ('1', 'true')) AS is_p2p_off, coalesce(bool_or(name = 'NCCL_P2P_LEVEL'), false) AS is_p2p_limited FROM nccl_setting
),
measured AS (
    SELECT max(bus_bytes_per_s) AS bus_bytes_per_s, arg_max(size_bytes, size_bytes) AS size_bytes FROM collective_bench WHERE size_bytes >= 67108864
),
logged AS (  -- why an engine does not exchange data by its own kernels
    SELECT coalesce(bool_or(detail LIKE '%pcie-only%'), false) AS is_pcie_told, coalesce(bool_or(detail LIKE '%p2p%'), false) AS is_no_peer_told
    FROM engine_event WHERE event = 'all_reduce_plain'
),
card AS (
    SELECT any_value(compute_major) AS compute_major, any_value(nvlink_bytes_per_s) AS nvlink_bytes_per_s, any_value(pcie_generation) AS pcie_generation,
        coalesce(bool_and(is_confirmed), true) AS is_confirmed FROM gpu_model
)
SELECT matrix.*, carried.*, chosen.*, measured.*, card.*, logged.*
FROM matrix, carried, chosen, measured, card, logged
WHERE pair_count > 0 OR connection_count > 0 OR refused_pair_count > 0 OR is_p2p_off OR bus_bytes_per_s IS NOT NULL OR is_pcie_told OR is_no_peer_told
ORDER BY 1;

-- host_network: how communicators over several hosts exchange data; one row a communicator that has more than one rank.
CREATE TABLE host_network AS
SELECT coalesce(communicator, 'unknown') AS communicator, max(world_size) AS world_size,
    greatest(coalesce(max(node_count), 1), count(DISTINCT node_id)) AS node_count, max(node_count) IS NOT NULL OR count(DISTINCT node_id) > 1 AS is_node_count_known,
    any_value(network) AS network, any_value(socket_interface) AS socket_interface, coalesce(bool_or(is_ib_missing), false) AS is_ib_missing,
    coalesce(bool_or(is_ib_found), false) AS is_ib_found,
    (SELECT count(*) FROM nccl_connection WHERE transport = 'net') AS net_connection_count,
    (SELECT count(*) FROM nccl_connection WHERE transport = 'net' AND detail = 'socket') AS socket_connection_count,
    (SELECT count(DISTINCT network_card) FROM gpu_link WHERE network_card IS NOT NULL) AS card_count,
    (SELECT any_value(value) FROM nccl_setting WHERE name = 'NCCL_IB_DISABLE') AS ib_disable,
    EXISTS (SELECT 1 FROM nccl_setting WHERE name = 'NCCL_IB_HCA') AS is_ib_wanted
FROM nccl_rank
GROUP BY coalesce(communicator, 'unknown')
HAVING max(coalesce(world_size, 2)) > 1
ORDER BY 1;

-- missing_rank: ranks that the evidence says there are and that were not recorded, at most eight of them named; one row, or none.
CREATE TABLE missing_rank AS
WITH recorded AS (
    SELECT DISTINCT rank, world_size FROM source JOIN timeline_source USING (source_id) WHERE rank IS NOT NULL AND world_size BETWEEN 2 AND 100000
),
known AS (
    SELECT max(world_size) AS world_size, count(DISTINCT rank) AS recorded_count, min(rank) AS rank FROM recorded
),
absent AS (
    SELECT number FROM known, unnest(range(coalesce(world_size, 0))) AS every (number)
    WHERE number NOT IN (SELECT rank FROM recorded) ORDER BY number LIMIT 8
)
SELECT world_size, recorded_count, rank, (SELECT string_agg(number::TEXT, ', ' ORDER BY number) FROM absent) AS missing_ranks
FROM known
WHERE recorded_count < world_size
ORDER BY 1;
