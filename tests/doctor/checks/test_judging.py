from __future__ import annotations

from dataclasses import replace

import pytest

from doctor.checks.check import Demand
from doctor.checks.judging import bounds_of, breaches, severity_named
from doctor.diagnosis.outcome import EvidenceFile
from doctor.errors import UsageError
from doctor.rule import Severity
from tests.support import diagnoses


def subjects(demand: Demand) -> list[str]:
    return [breach.subject for breach in breaches(diagnoses.launch_bound(), demand)]


def test_a_finding_over_the_bar_is_a_breach_and_its_followers_are_not() -> None:
    assert subjects(Demand(Severity.LOW)) == ["host-dispatch-bound", "lazy-module-load"]


def test_the_bar_itself_is_let_pass() -> None:
    assert subjects(Demand(Severity.MEDIUM)) == ["host-dispatch-bound"]
    assert subjects(Demand(Severity.CRITICAL)) == []


def test_an_allowed_rule_takes_its_followers_along() -> None:
    assert subjects(Demand(Severity.LOW, ("host-dispatch-bound",))) == ["lazy-module-load"]


def test_allowing_a_follower_does_not_allow_the_cause() -> None:
    assert subjects(Demand(Severity.MEDIUM, ("cudagraph-off",))) == ["host-dispatch-bound"]


def test_a_breach_names_what_has_the_same_cause() -> None:
    (breach,) = breaches(diagnoses.launch_bound(), Demand(Severity.MEDIUM))
    assert breach.words == "critical: Decode is bound by kernel launches (and of the same cause: cudagraph-off)"
    assert breach.severity is Severity.CRITICAL


def test_a_number_bounds_a_vital_the_way_its_nature_asks() -> None:
    allowing_all = Demand(Severity.CRITICAL, (), bounds_of({"gpu_busy": 0.6, "syncs_per_step": 0.5}))
    assert subjects(allowing_all) == ["gpu_busy", "syncs_per_step"]
    at_the_limits = bounds_of({"gpu_busy": 0.155, "syncs_per_step": 1})
    assert subjects(Demand(Severity.CRITICAL, (), at_the_limits)) == []


def test_a_bound_may_say_its_direction() -> None:
    bounds = bounds_of({"gpu_busy": {"at_least": 0.1, "at_most": 0.15}, "kernel_median_us": {"at_most": 2}})
    assert subjects(Demand(Severity.CRITICAL, (), bounds)) == ["gpu_busy", "kernel_median_us"]


def test_a_vital_that_is_unknown_is_a_breach() -> None:
    demand = Demand(Severity.CRITICAL, (), bounds_of({"launches_per_step": 5}))
    (breach,) = breaches(diagnoses.foreign_process(), demand)
    assert breach.words == "launches_per_step must be at most 5, and this evidence does not tell it"


def test_the_time_of_a_step_is_a_vital() -> None:
    bounds = bounds_of({"step_seconds": 0.0298})
    [breach] = breaches(diagnoses.launch_bound(), Demand(Severity.CRITICAL, (), bounds))
    assert breach.subject == "step_seconds"


def test_a_recording_without_device_work_is_not_healthy_and_a_silent_log_is() -> None:
    blind = replace(diagnoses.healthy(), window=None, ruled_out=(), vitals={})
    assert [breach.subject for breach in breaches(blind, Demand())] == ["evidence"]
    log = replace(blind, evidence=(EvidenceFile("serve.log", "engine-log", None, True, ()),))
    assert breaches(log, Demand()) == ()


@pytest.mark.parametrize(
    "limits",
    [
        {"gpu_bussy": 1},
        {"gpu_busy": "much"},
        {"gpu_busy": True},
        {"gpu_busy": -1},
        {"gpu_busy": {}},
        {"gpu_busy": {"below": 1}},
        {"gpu_busy": {"at_most": float("nan")}},
    ],
)
def test_a_bound_that_says_nothing_is_refused(limits: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        bounds_of(limits)


def test_a_severity_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="info, low, medium, high, critical"):
        severity_named("terrible")


def test_a_recording_of_which_a_part_is_lost_is_no_healthy_one() -> None:
    whole = diagnoses.launch_bound()
    damaged = replace(whole, evidence=tuple(replace(file, is_complete=False) for file in whole.evidence))
    allowing_all = Demand(Severity.CRITICAL)
    assert breaches(whole, allowing_all) == ()
    (breach,) = breaches(damaged, allowing_all)
    assert breach.subject == "evidence"
    assert [one.subject for one in breaches(damaged, Demand(Severity.MEDIUM))] == ["host-dispatch-bound"]
