"""Hosts exchange data over TCP: the communication library found no InfiniBand or RoCE and fell back to sockets.

What happens: inside a container without the library, the devices or the right to lock memory, the network cards cannot
be used. Nothing fails: the library takes the next best way, Ethernet through the kernel, at a tenth of the bandwidth
and many times the latency.

How it is detected: the log of the communication library names sockets as the network of a communicator that spans
several hosts. What it says of missing InfiniBand, and cards that the topology shows, are given with it.

When it is not this: on one host the network is never used, whatever the log names; ranks reach each other through
memory. A cluster that has Ethernet only has no faster way to fall back from.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict

ABOUT = About(
    id="nccl-socket-fallback",
    title="Hosts talk over TCP in place of InfiniBand or RoCE",
    stage=Stage.HARDWARE,
    reads=("host_network",),
    needs=("nccl-log",),
)

THRESHOLDS = {
    "min_hosts": Threshold(2, "hosts", source="on one host no network is used"),
    "min_exposed": Threshold(0.05, "share of the window", source="rule of thumb: below it the network decides nothing"),
}

SQL = """
SELECT host_network.*, (SELECT avg(exposed_communication_ns / (until_ns - from_ns)) FROM device_busy, steady_window) AS exposed_share
FROM host_network
QUALIFY row_number() OVER (ORDER BY node_count DESC, world_size DESC, communicator) = 1
"""


class Network(NamedTuple):
    """The communicator that spans most hosts."""

    communicator: str
    world_size: int | None
    node_count: int
    is_node_count_known: bool
    network: str | None
    socket_interface: str | None
    is_ib_missing: bool
    is_ib_found: bool
    net_connection_count: int
    socket_connection_count: int
    card_count: int
    ib_disable: str | None
    is_ib_wanted: bool
    exposed_share: float | None


def judge(row: Network) -> Verdict:
    """Sockets between hosts."""
    over_sockets = row.network == "socket" or row.socket_connection_count > 0
    if not over_sockets:
        return None
    is_refused = row.is_ib_wanted and row.is_ib_missing and not row.is_node_count_known  # cards are named and not found
    spans = row.node_count >= THRESHOLDS["min_hosts"].value or row.socket_connection_count > 0 or is_refused
    if not spans:
        return Cleared(
            f"the log names sockets, but all {row.world_size or 'its'} ranks are on one host: the network is not used"
        )
    why = _why(row)
    exposed = f"; {row.exposed_share:.0%} of the window is exposed communication" if row.exposed_share else ""
    is_hidden = row.exposed_share is not None and row.exposed_share < THRESHOLDS["min_exposed"].value
    evidence = [Evidence("hosts", float(row.node_count), "hosts"), Evidence("network", row.network or "socket", "name")]
    if row.exposed_share is not None:
        evidence.append(Evidence("exposed communication", row.exposed_share, "share of window"))
    where = f"on {row.node_count} hosts" if row.node_count > 1 else "of several hosts"
    return Finding(
        summary=f"{row.world_size or 'several'} ranks {where} exchange data over TCP ({row.socket_interface or 'sockets'}){why}{exposed}",
        evidence=tuple(evidence),
        severity=Severity.LOW if is_hidden else Severity.HIGH,
        speedup_bound=1 / (1 - row.exposed_share) if row.exposed_share and 0.05 <= row.exposed_share < 0.95 else None,
        confidence=0.9 if row.is_ib_missing or row.card_count or row.ib_disable == "1" else 0.7,
    )


def _why(row: Network) -> str:
    if row.ib_disable == "1":
        return ": InfiniBand is switched off (NCCL_IB_DISABLE=1)"
    if row.card_count:
        return f", although the machine has {row.card_count} cards for it"
    if row.is_ib_missing and row.is_ib_wanted:
        return ": NCCL_IB_HCA names cards, and none could be used"
    if row.is_ib_missing:
        return ": no InfiniBand or RoCE device could be used"
    return ""


FIXES = (
    Fix(
        "system",
        "container: --device /dev/infiniband --cap-add IPC_LOCK --ulimit memlock=-1, libibverbs and rdma-core installed; Kubernetes: the RDMA device plugin",
        "the library finds the cards: NCCL_DEBUG=INFO then says NET/IB",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    Fix(
        "system",
        "unset NCCL_IB_DISABLE; NCCL_IB_HCA=<cards>; NCCL_NET=IB, which fails in place of falling back",
        "a fallback is noticed at the start and not in the bill",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (names in the index of 2.15.5)",
    ),
    Fix(
        "vllm",
        "--tensor-parallel-size within a host, --pipeline-parallel-size across hosts, until the network is mended",
        "fewer and smaller messages cross the slow network",
        source="https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",
    ),
    Fix(
        "sglang",
        "--tp-size within a host, --pp-size across hosts, until the network is mended",
        "fewer and smaller messages cross the slow network",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Network,
    judge=judge,
    fixes=FIXES,
    verify="NCCL_DEBUG=INFO says `Using network IB`, and all_reduce_perf over the hosts reaches the cards' bandwidth.",
    doc=__doc__,
)
