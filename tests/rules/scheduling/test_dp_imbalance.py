from __future__ import annotations

from itertools import chain

import pytest

from tests.support import engine_texts as texts
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


def test_one_moment_with_queues_beside_room_is_told_with_less_weight(clinic: Clinic) -> None:
    moment = [(50, 110, 100.0), (33, 90, 98.8), (40, 0, 62.0), (22, 0, 35.0)]
    lines = [texts.vllm_status(0.0, *state, engine=engine) for engine, state in enumerate(moment)]
    verdicts = clinic.told(texts.lines(lines))
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["severity"] == "medium"
    assert "110 requests in its queue while another has room" in verdicts.finding(RULE)["summary"]


def test_one_moment_in_which_all_are_full_or_none_waits_is_no_imbalance(clinic: Clinic) -> None:
    full = [texts.vllm_status(0.0, 40 + engine, 30, 99.0, engine=engine) for engine in range(4)]
    assert RULE not in clinic.told(texts.lines(full)).found
    uneven = [texts.vllm_status(0.0, running, 0, 20.0, engine=engine) for engine, running in enumerate((30, 4, 12))]
    assert RULE not in clinic.told(texts.lines(uneven)).found
