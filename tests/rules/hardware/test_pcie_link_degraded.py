"""Reconstructed from local-inference-lab/rtx6kpro PR#88: one of several cards at gen 2, 100 % busy for hours."""

from __future__ import annotations

from tests.support.device_texts import busy, query_gpu
from tests.support.verdicts import Clinic

RULE = "pcie-link-degraded"


def two_cards(**second: str) -> str:
    rows = []
    for first, other in zip(busy(5), busy(5, index="1", **second), strict=True):
        rows += [first, other]
    return query_gpu(rows)


def test_names_the_card_whose_link_is_slow_under_load(clinic: Clinic) -> None:
    verdicts = clinic.told(two_cards(pcie__link__gen__current="2"))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert "GPU 1" in finding["title"]
    assert "13%" in finding["summary"]
    assert "other devices of this machine are faster" in finding["summary"]


def test_an_idle_card_lowers_its_link_on_purpose(clinic: Clinic) -> None:
    verdicts = clinic.told(two_cards(pcie__link__gen__current="1", utilization__gpu="0 %", power__draw="60.00 W"))
    assert RULE not in verdicts.found


def test_one_good_sample_under_load_clears_it(clinic: Clinic) -> None:
    rows = busy(5, pcie__link__gen__current="1")
    rows[3]["pcie.link.gen.current"] = "5"
    assert RULE not in clinic.told(query_gpu(rows)).found


def test_few_lanes_are_told_at_rest_and_the_generation_is_not(clinic: Clinic) -> None:
    rest = {"utilization__gpu": "0 %", "power__draw": "60.00 W", "pcie__link__gen__current": "1"}
    few = clinic.told(query_gpu(busy(5, pcie__link__width__current="4", **rest)))
    assert "runs on 4 of 16 PCIe lanes" in few.finding(RULE)["summary"]
    assert RULE not in clinic.told(query_gpu(busy(5, pcie__link__width__current="8", **rest))).found


def test_a_link_held_against_a_figure_that_no_vendor_states_says_so(clinic: Clinic) -> None:
    slow = {"pcie__link__gen__current": "1", "pcie__link__gen__max": "[N/A]", "pcie__link__gen__gpumax": "[N/A]"}
    told = clinic.told(query_gpu(busy(5, name="NVIDIA L20", **slow))).finding(RULE)["summary"]
    assert "gen4 x16, unconfirmed: its vendor publishes no data sheet is possible" in told
    assert "unconfirmed" not in clinic.told(query_gpu(busy(5, name="NVIDIA L40", **slow))).finding(RULE)["summary"]
