"""How devices and ranks are connected: topology, communication library logs, the load of experts."""

from __future__ import annotations

from sqlalchemy import Table

from doctor.case.schema.columns import flag, metadata, of_source, real, small, text_column, whole

gpu_link = Table(
    "gpu_link",
    metadata,
    of_source(),
    small("device_id", "one end"),
    small("peer_device_id", "other end, another device; NULL where the other end is a network card"),
    text_column("network_card", "other end, as the tool numbers it (NIC0) or calls it (mlx5_0)"),
    text_column("link_kind", "nv, pix, pxb, phb, node, sys"),
    small("nvlink_count", "NVLinks in the bundle, for nv"),
    text_column(
        "peer_access", "ok, or why not: chipset_not_supported, topology_not_supported, disabled, not_supported"
    ),
    comment="How two devices, or a device and a network card, are connected: nvidia-smi topo",
)

gpu_affinity = Table(
    "gpu_affinity",
    metadata,
    of_source(),
    small("device_id", "device"),
    text_column("cpu_affinity", "CPUs near it, as a list of ranges"),
    small("numa_node_id", "NUMA node near it; NULL where the machine has one or does not say"),
    comment="Which CPUs and memory lie near a device",
)

nccl_rank = Table(
    "nccl_rank",
    metadata,
    of_source(),
    text_column("communicator", "id of the communicator that its ranks share"),
    small("rank", "rank in the communicator"),
    small("world_size", "ranks of the communicator"),
    small("node_id", "number given to the host by order of appearance: host names are not kept"),
    whole("pid", "process"),
    small("device_id", "CUDA ordinal"),
    small("nvml_device_id", "ordinal of NVML"),
    small("node_count", "hosts of the communicator"),
    small("local_rank_count", "ranks on this host"),
    small("channel_count", "channels for collectives"),
    text_column("version", "NCCL or RCCL version"),
    text_column("network", "network chosen between hosts: socket, ib, or the plugin's name in lower case"),
    text_column("socket_interface", "interface used by sockets"),
    flag("is_ib_missing", "the library looked for InfiniBand or RoCE and found no device, or no library to use it"),
    flag("is_ib_found", "InfiniBand or RoCE devices were found"),
    flag("is_gpu_direct", "the network reads device memory itself"),
    flag("is_p2p_everywhere", "all local ranks reach each other's memory"),
    whole("init_ns", "time to set the communicator up"),
    comment="One rank of a communicator, as the communication library tells it",
)

nccl_connection = Table(
    "nccl_connection",
    metadata,
    of_source(),
    small("node_id", "host that printed the line"),
    whole("pid", "process that printed the line"),
    small("channel_id", "channel"),
    small("from_rank", "sender"),
    small("to_rank", "receiver"),
    small("from_device_id", "sender's device"),
    small("to_device_id", "receiver's device"),
    text_column("transport", "p2p, shm, net, collnet, nvls"),
    text_column("detail", "as printed behind the transport: ipc, cumem, direct, socket, ib"),
    flag("is_gpu_direct", "the network reads device memory itself"),
    comment="Connections of a communicator's channels",
)

nccl_setting = Table(
    "nccl_setting",
    metadata,
    of_source(),
    text_column("name", "variable of NCCL"),
    text_column("value", "what it was set to: numbers and words only"),
    comment="Settings of the communication library that its log says were changed",
)

collective_bench = Table(
    "collective_bench",
    metadata,
    of_source(),
    text_column("operation", "all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send_recv"),
    whole("size_bytes", "bytes of the message"),
    whole("dur_ns", "time of one operation, out of place"),
    real("algorithm_bytes_per_s", "size over time"),
    real("bus_bytes_per_s", "what the slowest link carries"),
    small("rank_count", "ranks"),
    comment="Table printed by the nccl-tests programs",
)

expert_load = Table(
    "expert_load",
    metadata,
    of_source(),
    whole("time_ns", "when; NULL where the evidence does not say"),
    whole("step_id", "forward pass, as the engine counts"),
    small("layer_id", "layer"),
    small("rank", "expert-parallel rank"),
    small("expert_id", "expert"),
    whole("token_count", "tokens sent there"),
    real("balancedness_share", "mean over maximum of tokens per rank, where the engine prints that in place of counts"),
    small("window_count", "forward passes that the figure stands for"),
    comment="Tokens by expert or rank of a mixture-of-experts model",
)
