from __future__ import annotations

from tests.support.verdicts import Clinic

RULE = "guided-decode-cpu"
TABLE = "structured output,concurrency,TPOT p50 (ms),tok/s\njson schema,32,68,470\nfree,32,{},3500\n"


def test_names_steps_that_masks_hold_up_at_the_same_load(clinic: Clinic) -> None:
    verdicts = clinic.told(TABLE.format(9))
    assert verdicts.first == RULE
    assert 7 < verdicts.evidence(RULE, "time a token, guided against free") < 8
    assert RULE not in clinic.told(TABLE.format(60)).found


def test_leaves_it_to_a_quota_that_stops_the_container(clinic: Clinic) -> None:
    throttled = "usage_usec 900\nnr_periods 1000\nnr_throttled 980\nthrottled_usec 880000\n"
    verdicts = clinic.told(TABLE.format(9), throttled)
    assert RULE not in verdicts.found
    assert "98%" in verdicts.ruled_out[RULE]
    assert "cpu-quota-throttle" in verdicts.found
