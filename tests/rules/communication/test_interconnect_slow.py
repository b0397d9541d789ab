"""Reconstructed from vllm-project/vllm#4238 (PCIe root ports, no NVLink, two devices at half load), NVIDIA/nccl#2079
and nccl#949 (access control on bridges), noonghunna/club-3090#356 (two devices without peer access)."""

# ruff: noqa: E501 - the tools' own lines are long

from __future__ import annotations

from tests.rules.communication.test_straggler_rank import ranks
from tests.support.device_texts import nccl_log, smi_table, topology
from tests.support.traces import shared_trace
from tests.support.verdicts import Clinic

RULE = "interconnect-slow"
SLOW = topology([["X", "PHB"], ["PHB", "X"]])
FAST = topology([["X", "NV18"], ["NV18", "X"]])
HALF = smi_table([{"busy": 50, "used": 20000}] * 2, [(0, 4711, "python3", 19000), (1, 4712, "python3", 19000)])
SERVE = "$ vllm serve mistralai/Mistral-7B-v0.1 --tensor-parallel-size 2\n"
NO_PEERS = " \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"


def test_fires_on_tensor_parallelism_through_the_cpu(clinic: Clinic) -> None:
    verdicts = clinic.told(SERVE + SLOW + HALF)
    assert RULE in verdicts.found
    assert "2 devices share a layer over PHB" in verdicts.finding(RULE)["summary"]


def test_nvlink_clears_it_and_replicas_need_none(clinic: Clinic) -> None:
    assert RULE not in clinic.told(SERVE.replace("tensor", "data") + SLOW + HALF).found
    verdicts = clinic.told(SERVE + FAST + HALF)
    assert RULE not in verdicts.found
    assert "the two devices are joined by NVLink" in verdicts.ruled_out[RULE]
    four = topology([["X" if here == there else "NV18" for there in range(4)] for here in range(4)])
    assert (
        "all 6 pairs of devices are joined by NVLink"
        in clinic.told(SERVE.replace("size 2", "size 4") + four).ruled_out[RULE]
    )


def test_fires_on_exchange_through_host_memory(clinic: Clinic) -> None:
    log = nccl_log(["a", "a"], via="via SHM/direct/direct", said=["NCCL_P2P_DISABLE set by environment to 1."])
    verdicts = clinic.told(log)
    assert "NCCL_P2P_DISABLE=1" in verdicts.finding(RULE)["summary"]
    assert "host memory (SHM)" in verdicts.finding(RULE)["summary"]


def test_fires_on_refused_peer_access(clinic: Clinic) -> None:
    assert "chipset not supported" in clinic.told(SERVE + NO_PEERS).finding(RULE)["summary"]


def test_a_recording_says_what_the_link_costs(clinic: Clinic) -> None:
    costly, cheap = clinic.folder / "costly", clinic.folder / "cheap"
    for folder, transfer_us in ((costly, 60.0), (cheap, 1.0)):
        folder.mkdir()
        for place, program in enumerate(ranks([(60.0, 60.0)] * 40, transfer_us=transfer_us)):
            program.write(folder / f"rank{place}.json")
    finding = clinic.told(costly, SLOW).finding(RULE)
    assert "50% of the window is exposed communication" in finding["summary"]
    assert finding["gain"]["speedup_bound"] > 1.8
    assert "exposed communication is" in clinic.told(cheap, SLOW).ruled_out[RULE]


def test_the_real_log_and_matrix_of_two_h200_are_clean(clinic: Clinic) -> None:
    verdicts = clinic.told(shared_trace("h200x2/nccl.log.gz"), shared_trace("h200x2/topo.txt"))
    assert verdicts.found == set()
    assert "joined by NVLink (18 links)" in verdicts.ruled_out[RULE]
    assert "on one host" in verdicts.ruled_out["nccl-socket-fallback"]


def measured(bandwidth: float) -> str:
    """`all_reduce_perf -b 64M -e 256M -g 8`, with the matrix of a machine with NVLink."""
    rows = "".join(
        f"  {size:>11} {size // 4:>13}     float     sum      -1   {size / bandwidth / 500:>7.1f}  {bandwidth / 1.75:>6.2f}  {bandwidth:>6.2f}      0"
        f"   {size / bandwidth / 500:>7.1f}  {bandwidth / 1.75:>6.2f}  {bandwidth:>6.2f}      0\n"
        for size in (67108864, 134217728, 268435456)
    )
    return (
        "$ ./build/all_reduce_perf -b 64M -e 256M -f 2 -g 8\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
        + rows
    )


def test_a_measured_bandwidth_under_half_of_the_link_is_slow(clinic: Clinic) -> None:
    """Reconstructed from nccl#949: 48 GB/s once access control on the bridges was set right, half of that before."""
    matrix = topology([["X", "PIX"], ["PIX", "X"]]) + smi_table([{"name": "NVIDIA H100 PCIe"}] * 2)
    slow = clinic.told(matrix + measured(20.0)).finding(RULE)
    assert "a collective reaches 20 GB/s, the link could carry 48" in slow["summary"]
    assert RULE not in clinic.told(matrix + measured(44.0)).found


def test_a_link_that_no_vendor_states_says_so(clinic: Clinic) -> None:
    def summary(product: str) -> str:
        matrix = topology([["X", "PIX"], ["PIX", "X"]]) + smi_table([{"name": product}] * 2)
        return str(clinic.told(matrix + measured(9.0)).finding(RULE)["summary"])

    assert "the link could carry 24, unconfirmed: its vendor publishes no data sheet" in summary("NVIDIA L20")
    assert "unconfirmed" not in summary("NVIDIA L40")


def test_an_engine_that_leaves_its_all_reduce_off_says_what_joins_the_devices(clinic: Clinic) -> None:
    said = "(Worker pid=7) WARNING 09-09 10:22:11 [custom_all_reduce.py:154] Custom allreduce is disabled because {}. To silence this warning, specify disable_custom_all_reduce=True explicitly.\n"
    pcie = said.format("it's not supported on more than two PCIe-only GPUs")
    verdicts = clinic.told(pcie + "vllm serve org/name --tensor-parallel-size 4\n")
    assert "PCIe alone joins" in verdicts.finding(RULE)["summary"]
    assert verdicts.finding(RULE)["severity"] == "medium"
    refused = said.format("your platform lacks GPU P2P capability or P2P test failed")
    assert "no peer access" in clinic.told(refused).finding(RULE)["summary"]
    assert RULE not in clinic.told(said.format("of an unsupported world size: 3. Supported world sizes: [2, 4]")).found
    assert RULE not in clinic.told(pcie + FAST).found
