"""Reconstructed from sgl-project/sglang PR#1427 and vllm PR#42075: a container without libibverbs and cards."""

from __future__ import annotations

from tests.support.device_texts import nccl_log
from tests.support.verdicts import Clinic

RULE = "nccl-socket-fallback"
MISSING = ["Failed to open libibverbs.so[.1]", "NET/Socket : Using [0]eth0:10.0.0.7<0>"]


def test_fires_on_sockets_between_hosts(clinic: Clinic) -> None:
    verdicts = clinic.told(
        nccl_log(["node-a", "node-a", "node-b", "node-b"], via="[send] via NET/Socket/0", said=MISSING)
    )
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert (
        "4 ranks on 2 hosts exchange data over TCP (eth0): no InfiniBand or RoCE device could be used"
        in finding["summary"]
    )
    assert "node-a" not in str(verdicts.document)


def test_flips_on_infiniband(clinic: Clinic) -> None:
    log = nccl_log(
        ["a", "b"],
        via="[send] via NET/IB/0/GDRDMA",
        network="IB",
        said=["NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.7<0>"],
    )
    assert clinic.told(log).found == set()


def test_sockets_on_one_host_are_ruled_out(clinic: Clinic) -> None:
    verdicts = clinic.told(nccl_log(["a", "a"], via="via P2P/IPC/read", said=MISSING))
    assert RULE not in verdicts.found
    assert "the network is not used" in verdicts.ruled_out[RULE]
