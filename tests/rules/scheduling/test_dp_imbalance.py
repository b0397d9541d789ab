from __future__ import annotations

from itertools import chain

import pytest

from tests.support.device_texts import busy, query_gpu
from tests.support.verdicts import Clinic

RULE = "dp-imbalance"
REPLICAS = "vllm serve org/name --data-parallel-size 4\n"


def devices(*shares: int) -> str:
    """Samples of as many devices over ten seconds."""
    return query_gpu(
        list(
            chain.from_iterable(
                busy(index=str(device), utilization__gpu=f"{share} %") for device, share in enumerate(shares)
            )
        )
    )


def test_devices_of_replicas_that_work_for_different_times_are_named(clinic: Clinic) -> None:
    verdicts = clinic.told(REPLICAS, devices(95, 94, 30, 6))
    assert RULE in verdicts.found
    assert verdicts.evidence(RULE, "idlest device") == pytest.approx(0.06)


def test_devices_that_work_alike_are_no_fault(clinic: Clinic) -> None:
    assert RULE not in clinic.told(REPLICAS, devices(95, 94, 90, 96)).found


def test_uneven_devices_without_replicas_are_something_else(clinic: Clinic) -> None:
    assert RULE not in clinic.told("vllm serve org/name --tensor-parallel-size 4\n", devices(95, 94, 30, 6)).found
