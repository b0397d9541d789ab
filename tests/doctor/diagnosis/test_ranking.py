"""The decision order, on suspects whose wins are given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.diagnosis.ranking import Ranked, Suspect, rank
from doctor.replay.promise import Win
from doctor.rule import Cure, Finding, Severity, Stage
from tests.support.rule_files import rule


def win(share: float, bound_share: float | None = None) -> Win:
    """A win of a share of the window, as expected and at most."""
    bound = share if bound_share is None else bound_share
    return Win(bound, bound, 1 / (1 - bound), 1 / (1 - share), 1.0, 1 / (1 - share))


def costs(
    name: str,
    share: float,
    stage: Stage = Stage.SPECIFIC,
    *,
    bound_share: float | None = None,
    group: str = "",
    cap: Severity = Severity.CRITICAL,
    question: str = "",
) -> Suspect:
    """A time cause whose cure frees a share of the window."""
    finding = Finding("summary", (), cure=Cure(()), cleared="looked guilty", max_severity=cap, question=question)
    return Suspect(rule(name, stage, group=group), finding, win(share, bound_share))


def states(name: str, severity: Severity, stage: Stage) -> Suspect:
    """A finding that states a severity of its own."""
    return Suspect(rule(name, stage), Finding("summary", (), severity=severity), None)


def follows(name: str, group: str, place: int) -> Suspect:
    """A finding that shares the win of its group's principal."""
    return Suspect(rule(name, Stage.GENERAL, group=group, group_rank=place), Finding("summary", ()), None)


def ranked(*suspects: Suspect) -> Ranked:
    return rank(suspects, None)


def order(*suspects: Suspect) -> list[str]:
    return [finding.rule for finding in ranked(*suspects).findings]


def test_the_greater_win_comes_first_among_specific_causes() -> None:
    assert order(costs("waits", 0.2), costs("copies", 0.4), costs("loads", 0.3)) == ["copies", "loads", "waits"]


def test_a_specific_cause_of_half_the_win_of_dispatch_stands_before_it() -> None:
    assert order(costs("dispatch", 0.6, Stage.GENERAL), costs("waits", 0.31)) == ["waits", "dispatch"]


def test_a_specific_cause_less_grave_than_dispatch_stands_behind_it() -> None:
    assert order(costs("dispatch", 0.31, Stage.GENERAL), costs("waits", 0.29)) == ["dispatch", "waits"]
    assert order(costs("waits", 0.5, cap=Severity.MEDIUM), costs("copies", 0.2)) == ["copies", "waits"]


def test_a_specific_cause_of_less_than_half_the_win_of_dispatch_stands_behind_it() -> None:
    assert order(costs("waits", 0.29), costs("dispatch", 0.6, Stage.GENERAL)) == ["dispatch", "waits"]


def test_a_specific_cause_under_a_twentieth_of_the_window_goes_by_its_win() -> None:
    assert order(costs("waits", 0.049), costs("dispatch", 0.06, Stage.GENERAL)) == ["dispatch", "waits"]
    assert order(costs("waits", 0.051), costs("dispatch", 0.06, Stage.GENERAL)) == ["waits", "dispatch"]


def test_a_cause_seen_once_stands_behind_those_that_come_back() -> None:
    once = costs("prefill", 0.5, Stage.GENERAL, cap=Severity.LOW)
    assert order(once, costs("waits", 0.1), costs("loads", 0.6, cap=Severity.INFO)) == ["waits", "prefill", "loads"]
    assert {finding.severity for finding in ranked(once).findings} == {Severity.LOW}


def asks(name: str, share: float, cap: Severity = Severity.MEDIUM) -> Suspect:
    """A question on which a share of the window hangs."""
    return costs(name, share, cap=cap, question="were there requests?")


def test_a_question_is_answered_first_where_more_hangs_on_it_than_any_cure_would_win() -> None:
    assert order(costs("dispatch", 0.34, Stage.GENERAL), asks("sleeps", 0.55)) == ["sleeps", "dispatch"]
    assert order(costs("copies", 0.34), asks("sleeps", 0.55)) == ["sleeps", "copies"]
    assert {finding.severity for finding in ranked(asks("sleeps", 0.55)).findings} == {Severity.MEDIUM}


def test_a_question_on_which_less_hangs_stands_behind() -> None:
    assert order(asks("sleeps", 0.33), costs("dispatch", 0.34, Stage.GENERAL)) == ["dispatch", "sleeps"]
    assert order(asks("sleeps", 0.33), costs("copies", 0.34)) == ["copies", "sleeps"]
    assert order(asks("sleeps", 0.9, Severity.LOW), costs("copies", 0.06)) == ["copies", "sleeps"]


def test_a_question_on_little_stands_behind_a_cause_seen_once_that_holds_most_of_the_time() -> None:
    once = costs("copies", 0.75, cap=Severity.LOW)
    assert order(asks("pauses", 0.07, Severity.LOW), once) == ["copies", "pauses"]
    assert order(once, asks("pauses", 0.8, Severity.LOW)) == ["pauses", "copies"]


def test_what_is_low_stands_behind_all_that_is_worse() -> None:
    fills = states("fills", Severity.MEDIUM, Stage.MEMORY)
    slight, remark = costs("waits", 0.03), states("stray", Severity.INFO, Stage.RECORDING)
    assert order(remark, slight, fills, costs("copies", 0.06)) == ["copies", "fills", "waits", "stray"]


def test_an_opportunity_is_never_first_however_much_it_wins() -> None:
    assert order(costs("fuse", 0.9, Stage.OPPORTUNITY), costs("waits", 0.03)) == ["waits", "fuse"]


def test_grave_faults_come_first_the_recordings_own_then_what_ends_the_run() -> None:
    suspects = (
        costs("waits", 0.9),
        states("out-of-memory", Severity.CRITICAL, Stage.MEMORY),
        states("throttled", Severity.HIGH, Stage.HARDWARE),
        states("kernels-missing", Severity.HIGH, Stage.RECORDING),
    )
    assert order(*suspects) == ["kernels-missing", "out-of-memory", "throttled", "waits"]


def test_a_cause_that_a_log_states_stands_behind_a_replayed_one_as_grave() -> None:
    stated = states("log-says", Severity.HIGH, Stage.SPECIFIC)
    assert order(stated, costs("waits", 0.5)) == ["waits", "log-says"]
    assert order(stated, costs("waits", 0.06)) == ["log-says", "waits"]


def test_remarks_on_the_recording_come_last() -> None:
    remark = states("stray", Severity.INFO, Stage.RECORDING)
    assert order(remark, costs("fuse", 0.1, Stage.OPPORTUNITY), costs("waits", 0.1)) == ["waits", "fuse", "stray"]


def test_followers_stand_behind_their_principal_in_their_own_order_and_have_no_gain() -> None:
    findings = ranked(
        follows("tiny", "launch", 2),
        costs("waits", 0.05),
        follows("graphs-off", "launch", 1),
        costs("dispatch", 0.5, Stage.GENERAL, group="launch"),
    ).findings
    assert [finding.rule for finding in findings] == ["dispatch", "graphs-off", "tiny", "waits"]
    assert [finding.same_cause_as for finding in findings] == [None, "dispatch", "dispatch", None]
    assert [finding.gain is None for finding in findings] == [False, True, True, False]
    assert {finding.severity for finding in findings[:3]} == {Severity.CRITICAL}


def test_followers_fall_with_their_principal() -> None:
    outcome = ranked(follows("graphs-off", "launch", 1), costs("dispatch", 0.01, Stage.GENERAL, group="launch"))
    assert outcome.findings == ()
    assert [one.rule for one in outcome.ruled_out] == ["dispatch", "graphs-off"]


def test_followers_without_a_principal_are_ruled_out() -> None:
    assert [one.rule for one in ranked(follows("tiny", "launch", 2)).ruled_out] == ["tiny"]


def test_a_win_of_less_than_a_fiftieth_is_ruled_out_with_its_number() -> None:
    (cleared,) = ranked(costs("waits", 0.01)).ruled_out
    assert cleared.because == "looked guilty; curing it would win 1.0 % of the window (1.01x)"
    assert ranked(costs("waits", 0.02)).ruled_out == ()


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        (0.301, Severity.CRITICAL),
        (0.299, Severity.HIGH),
        (0.151, Severity.HIGH),
        (0.149, Severity.MEDIUM),
        (0.051, Severity.MEDIUM),
        (0.049, Severity.LOW),
        (0.02, Severity.LOW),
    ],
)
def test_severity_is_the_band_of_the_win_that_is_promised(share: float, severity: Severity) -> None:
    (finding,) = ranked(costs("waits", share)).findings
    assert finding.severity is severity


def test_time_that_the_recorder_added_makes_nothing_graver() -> None:
    (finding,) = ranked(costs("waits", 0.1, bound_share=0.5)).findings
    assert finding.severity is Severity.MEDIUM


def test_a_win_that_drowns_in_noise_is_low_whatever_its_bound() -> None:
    (finding,) = ranked(costs("waits", 0.047, bound_share=0.3)).findings  # 1.049 times as fast
    assert finding.severity is Severity.LOW


SUSPECTS = (
    costs("waits", 0.2),
    costs("copies", 0.2),
    costs("dispatch", 0.3, Stage.GENERAL, group="launch"),
    follows("graphs-off", "launch", 1),
    follows("tiny", "launch", 2),
    costs("prefill", 0.3, cap=Severity.LOW),
    costs("fuse", 0.5, Stage.OPPORTUNITY),
    states("kernels-missing", Severity.HIGH, Stage.RECORDING),
    states("stray", Severity.INFO, Stage.RECORDING),
)


@given(st.permutations(SUSPECTS))
def test_the_order_of_the_rules_does_not_matter(suspects: list[Suspect]) -> None:
    assert ranked(*suspects) == ranked(*SUSPECTS)
