"""Matrices and logs of ranks: the real ones of two H200, and other versions' lines as the tools print them."""

from __future__ import annotations

from pathlib import Path

from tests.support.device_texts import nccl_log
from tests.support.reading import Reading, read_all, rows
from tests.support.traces import shared_trace

WITH_CARDS = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tPXB\tSYS\t0-31,64-95\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tPXB\t32-63,96-127\t1\t\tN/A
NIC0\tPXB\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tPXB\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""
WITHOUT_TABS = """\
        GPU0    GPU1    CPU Affinity    NUMA Affinity
GPU0     X      PHB     0-11            N/A
GPU1    PHB      X      0-11            N/A
"""
OLD_LINES = """\
(RayWorker pid=77) box7:4242:4300 [1] NCCL INFO Channel 00 : 0[3d000] -> 1[3f000] via direct shared memory
box7:4242:4300 [1] NCCL INFO Channel 01 : 1[3f000] -> 0[3d000] via P2P/IPC
box8:4343:4400 [0] NCCL INFO Channel 00/0 : 1[0] -> 2[0] [send] via NET/IB/0/GDRDMA
box8:4343:4400 [0] NCCL WARN Failed to open libibverbs.so[.1]
box8:4343:4400 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0
box8:4343:4400 [0] NCCL INFO NCCL_COMM_ID set by environment to 10.0.0.1:2345
"""


def said(tmp_path: Path, text: str) -> Reading:
    path = tmp_path / "said.txt"
    path.write_text(text, encoding="utf-8")
    return read_all(path)


def test_reads_the_real_matrix_of_two_h200() -> None:
    reading = read_all(shared_trace("h200x2/topo.txt"))
    assert rows(reading, "gpu_link", "device_id", "peer_device_id", "link_kind", "nvlink_count") == [
        (0, 1, "nv", 18),
        (1, 0, "nv", 18),
    ]
    assert rows(reading, "gpu_affinity", "device_id", "cpu_affinity", "numa_node_id") == [
        (0, "0-31", 0),
        (1, "0-31", 0),
    ]


def test_names_network_cards_by_their_legend(tmp_path: Path) -> None:
    reading = said(tmp_path, WITH_CARDS)
    assert rows(reading, "gpu_link", "device_id", "peer_device_id", "network_card", "link_kind") == [
        (0, 1, None, "nv"),
        (0, None, "mlx5_0", "pxb"),
        (0, None, "mlx5_bond_0", "sys"),
        (1, 0, None, "nv"),
        (1, None, "mlx5_0", "sys"),
        (1, None, "mlx5_bond_0", "pxb"),
    ]
    assert reading.column("gpu_affinity", "numa_node_id") == [0, 1]


def test_reads_a_matrix_whose_tabs_became_spaces(tmp_path: Path) -> None:
    reading = said(tmp_path, WITHOUT_TABS)
    assert reading.column("gpu_link", "link_kind") == ["phb", "phb"]
    assert rows(reading, "gpu_affinity", "cpu_affinity", "numa_node_id") == [("0-11", None), ("0-11", None)]


def test_reads_the_real_log_of_two_ranks() -> None:
    reading = read_all(shared_trace("h200x2/nccl.log.gz"))
    assert rows(reading, "nccl_rank", "rank", "world_size", "node_count", "network", "channel_count", "version") == [
        (rank, 2, 1, "socket", 24, "2.28.9+cuda13.0") for rank in (0, 1)
    ]
    assert set(reading.column("nccl_connection", "transport")) == {"p2p"}
    assert len(reading.column("nccl_connection", "transport")) == 48
    assert rows(reading, "nccl_setting", "name", "value") == [("NCCL_NVLS_ENABLE", "0")]
    assert "192.0.2.2" not in str(reading.parts)


def test_reads_lines_of_other_versions_and_keeps_no_host_and_no_address(tmp_path: Path) -> None:
    reading = said(tmp_path, OLD_LINES)
    assert rows(reading, "nccl_connection", "transport", "detail", "is_gpu_direct", "node_id") == [
        ("shm", "direct", False, 0),
        ("p2p", "ipc", False, 0),
        ("net", "ib", True, 1),
    ]
    assert reading.column("nccl_setting", "name") == ["NCCL_SOCKET_IFNAME"]
    assert not any(word in str(reading.parts) for word in ("box7", "box8", "10.0.0.1"))


def test_counts_hosts_without_naming_them(tmp_path: Path) -> None:
    reading = said(tmp_path, nccl_log(["a", "a", "b", "b"], via="[send] via NET/Socket/0"))
    assert rows(reading, "nccl_rank", "rank", "node_id", "node_count") == [(0, 0, 2), (1, 0, 2), (2, 1, 2), (3, 1, 2)]


MARKDOWN = """\
> | | GPU0 | GPU1 | CPU Affinity |
> |---|---|---|---|
> | GPU0 | X | NODE | 0-15 |
> | GPU1 | NODE | X | 0-15 |
"""
LSPCI = """\
41:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090] (rev a1) (prog-if 00 [VGA controller])
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L0s L1, Exit Latency L0s <512ns, L1 <4us
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x4 (downgraded)
41:00.1 Audio device: NVIDIA Corporation GA102 High Definition Audio Controller (rev a1)
\t\tLnkSta:\tSpeed 16GT/s, Width x16
"""


def test_reads_a_matrix_that_became_a_table_of_markdown(tmp_path: Path) -> None:
    reading = said(tmp_path, MARKDOWN)
    assert reading.column("gpu_link", "link_kind") == ["node", "node"]
    assert reading.column("gpu_affinity", "cpu_affinity") == ["0-15", "0-15"]


def test_reads_the_links_of_lspci(tmp_path: Path) -> None:
    columns = (
        "name",
        "pci_bus_id",
        "pcie_generation",
        "pcie_generation_max",
        "pcie_lanes_count",
        "pcie_lanes_max_count",
    )
    assert rows(said(tmp_path, LSPCI), "gpu_sample", *columns) == [
        ("NVIDIA GeForce RTX 3090", "00000000:41:00.0", 1, 4, 4, 16)
    ]


def test_reads_lines_whose_host_was_taken_out_and_that_became_one(tmp_path: Path) -> None:
    line = (
        "[3] NCCL INFO NCCL_IB_HCA set to mlx5_2:1,mlx5_3:1 [3] NCCL INFO NET/IB : No device found."
        " [3] NCCL INFO NET/Socket : Using [0]ens3:10.1.2.3<0> [3] NCCL INFO Using network Socket\n"
    )
    reading = said(tmp_path, line)
    assert rows(reading, "nccl_rank", "network", "socket_interface", "is_ib_missing") == [("socket", "ens3", True)]
    assert rows(reading, "nccl_setting", "name", "value") == [("NCCL_IB_HCA", "mlx5_2:1,mlx5_3:1")]
    assert "10.1.2.3" not in str(reading.parts)


def test_reads_lines_that_mpirun_has_labelled(tmp_path: Path) -> None:
    text = "[1,4]<stdout>:node9:11:22 [0] NCCL INFO Ring 00 : 4[0] -> 5[0] via NET/Socket/0\n"
    assert said(tmp_path, text).column("nccl_connection", "transport") == ["net"]


def test_takes_settings_from_the_command_of_a_measurement(tmp_path: Path) -> None:
    text = "NCCL_P2P_DISABLE=1 ./all_reduce_perf -b 8M -e 128M -g 4\nexport OTHER=2\n"
    assert rows(said(tmp_path, text), "nccl_setting", "name", "value") == [("NCCL_P2P_DISABLE", "1")]
