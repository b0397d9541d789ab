"""Puts suspects in order by what their cure would win.

The order (found on recordings with known causes): recordings that cannot be trusted first, then failures of memory
or hardware, then time.
Among time causes a specific one (a wait, a copy, an allocation) stands before dispatch where its win is at least a
twentieth of the window and half the win of dispatch, and no less grave, because the profiler inflates dispatch most.
A question is capped, since there may be nothing to cure; it stands where its whole share would put it, before dispatch
where more hangs on it. Everything else goes by its win, opportunities last. Whatever its place in this order, a low
finding stands behind all that are medium or worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from doctor.diagnosis.outcome import MEASURABLE_SPEEDUP, Gain, RankedFinding, RuledOut
from doctor.replay.promise import Win
from doctor.replay.win import Replay
from doctor.rule import Finding, Rule, Severity, Stage
from doctor.units import format_share, format_speedup

SPECIFIC_LEAST_SHARE = 0.05
SPECIFIC_LEAST_OF_DISPATCH = 0.5
WORTH_NAMING_SHARE = 0.02
STATED_SHARE_REALISED = 0.5
"""Of a bound that a log states, public cases realised a quarter to 60 %."""
THEN_COUNT = 3
"""Findings after the first that are replayed on top of it."""


@dataclass(frozen=True)
class Suspect:
    """A finding with its replayed win; None for findings that state a severity or bytes of their own."""

    rule: Rule
    finding: Finding
    win: Win | None

    @property
    def share(self) -> float:
        """Share of the window that the cure would free on the corrected time-line; 0 without a cure."""
        return 0.0 if self.win is None else self.win.share_expected

    @property
    def severity(self) -> Severity:
        """The rule's own severity, or that of the win that is promised, under a cap; low where it is noise.

        Neither the time that the recorder added to what it recorded nor the bound of a better cure is promised: with
        them the same run would be critical in one recorder's words and low in another's.
        """
        if self.win is None:
            return self.finding.severity or Severity.INFO
        cap = self.finding.max_severity if self.is_measurable else min(self.finding.max_severity, Severity.LOW)
        return min(Severity.of_share(self.share), cap)

    @property
    def is_measurable(self) -> bool:
        """False where the cure is expected to win less than one could tell from noise, whatever its bound."""
        return self.win is None or self.win.speedup_expected >= MEASURABLE_SPEEDUP


@dataclass(frozen=True)
class _Held:
    """What the suspects are measured against.

    Attributes:
        dispatch_share: the best win of dispatch, as a share of the window.
        cured_share: the best win of a cause that is no question, be it dispatch or a specific one.
        dispatch: how grave dispatch is.
        replayed: how grave the gravest cause is whose win was replayed.
    """

    dispatch_share: float
    cured_share: float
    dispatch: Severity
    replayed: Severity

    @staticmethod
    def by(guilty: Sequence[Suspect]) -> _Held:
        """The greatest of each."""
        dispatch = [one for one in guilty if one.rule.about.stage is Stage.GENERAL]
        cured = [one for one in guilty if one.rule.about.stage in _CAUSES and not one.finding.question]
        return _Held(
            max((one.share for one in dispatch), default=0.0),
            max((one.share for one in cured), default=0.0),
            max((one.severity for one in dispatch), default=Severity.INFO),
            max((one.severity for one in guilty if one.win is not None), default=Severity.INFO),
        )


_CAUSES = (Stage.SPECIFIC, Stage.GENERAL)


@dataclass(frozen=True)
class Ranked:
    """Findings in order, and those whose cure would win next to nothing."""

    findings: tuple[RankedFinding, ...]
    ruled_out: tuple[RuledOut, ...]


def rank(suspects: Iterable[Suspect], replay: Replay | None) -> Ranked:
    """Order the suspects; a group's followers stand behind its principal, and fall with it."""
    everybody = list(suspects)
    led = {suspect.rule.about.group for suspect in everybody if suspect.rule.about.group_rank == 0}
    followers = [one for one in everybody if one.rule.about.group_rank > 0 and not _stands_alone(one, led)]
    principals = [one for one in everybody if one.rule.about.group_rank == 0 or _stands_alone(one, led)]
    is_trusted = replay is None or replay.quality.is_trusted
    guilty = [suspect for suspect in principals if _is_worth_naming(suspect, is_trusted=is_trusted)]
    acquitted = [suspect for suspect in principals if not _is_worth_naming(suspect, is_trusted=is_trusted)]
    held = _Held.by(guilty)
    ordered = sorted(guilty, key=lambda one: (_slightness(one), *_place(one, held)))
    findings: list[RankedFinding] = []
    thens = _after_first(ordered, replay)
    for position, suspect in enumerate(ordered):
        then = thens.get(position)
        findings.append(_ranked(suspect, replay, then))
        findings += [
            _follower(follower, suspect)
            for follower in sorted(followers, key=lambda one: one.rule.about.group_rank)
            if suspect.rule.about.group and follower.rule.about.group == suspect.rule.about.group
        ]
    groups = {suspect.rule.about.group for suspect in guilty}
    lone = [follower for follower in followers if follower.rule.about.group not in groups]
    return Ranked(tuple(findings), tuple(_acquittal(one, replay) for one in (*acquitted, *lone)))


def _stands_alone(suspect: Suspect, led: set[str]) -> bool:
    """True for a follower that a log or a setting shows: where nothing leads its group it speaks for itself."""
    return suspect.rule.about.group not in led and suspect.win is None and suspect.finding.severity is not None


def _is_worth_naming(suspect: Suspect, *, is_trusted: bool) -> bool:
    """By what its cure wins; where that cannot be trusted, what was recorded counts as well."""
    if suspect.win is None:
        return True
    share = suspect.share if is_trusted else max(suspect.share, suspect.win.share_of_window)
    return share >= WORTH_NAMING_SHARE


def _slightness(suspect: Suspect) -> int:
    """What is low or a remark stands behind all that is worse; an opportunity is never more than low in this."""
    is_opportunity = suspect.rule.about.stage is Stage.OPPORTUNITY
    severity = min(suspect.severity, Severity.LOW if is_opportunity else Severity.CRITICAL)
    return max(Severity.MEDIUM - severity, 0)


def _place(suspect: Suspect, held: _Held) -> tuple[int, float, str]:
    stage = suspect.rule.about.stage
    if _is_outspoken(suspect, held.replayed):
        stated = STATED_SHARE_REALISED * _stated_share(suspect.finding)
        return (1, -_gravity(suspect, stated), suspect.rule.about.id)
    is_grave = suspect.win is None and suspect.severity >= Severity.HIGH
    if is_grave:
        return (-2 if stage is Stage.RECORDING else -1, -_weight(suspect), suspect.rule.about.id)
    if suspect.win is None:
        return (10, -_weight(suspect), suspect.rule.about.id)
    if stage is Stage.OPPORTUNITY:
        return (3, -suspect.share, suspect.rule.about.id)
    least = max(SPECIFIC_LEAST_SHARE, SPECIFIC_LEAST_OF_DISPATCH * held.dispatch_share)
    is_question = bool(suspect.finding.question)
    is_one_off = suspect.finding.max_severity <= Severity.LOW and not is_question
    is_as_grave = suspect.share >= held.cured_share if is_question else suspect.severity >= held.dispatch
    leads = stage is Stage.SPECIFIC and suspect.share >= least and is_as_grave
    if leads and not is_one_off:
        return (0, -_gravity(suspect, suspect.share), suspect.rule.about.id)
    is_capped = suspect.finding.max_severity <= Severity.LOW
    weight = suspect.share if is_capped else _gravity(suspect, suspect.share)  # the cap is the same for all
    return (2 if is_capped else 1, -weight, suspect.rule.about.id)


def _gravity(suspect: Suspect, share: float) -> float:
    """Severity first, so that nothing graver stands below; then what is won. Of a question, what hangs on it."""
    severity = Severity.of_share(share) if suspect.finding.question and suspect.win is not None else suspect.severity
    return float(severity) + min(share, 0.999)


def _is_outspoken(suspect: Suspect, replayed: Severity) -> bool:
    """True for a cause of lost time that a log or a table states, where a replayed one is at least as grave."""
    is_of_time = suspect.rule.about.stage in {Stage.SPECIFIC, Stage.GENERAL, Stage.OPPORTUNITY}
    return is_of_time and suspect.win is None and Severity.HIGH <= suspect.severity <= replayed


def _stated_share(finding: Finding) -> float:
    return 0.0 if finding.speedup_bound is None else 1.0 - 1.0 / max(finding.speedup_bound, 1.0)


def _weight(suspect: Suspect) -> float:
    """Severity first, then the place in the decision order, then the share of the time that the cure would free."""
    stages = list(Stage)
    place = stages.index(suspect.rule.about.stage)
    return float(suspect.severity) * len(stages) - place + _stated_share(suspect.finding)


def _after_first(ordered: Sequence[Suspect], replay: Replay | None) -> dict[int, float]:
    """Speed-up of those behind the first, by place, once its cure is in place."""
    first = ordered[0].finding if ordered else None
    if replay is None or not replay.quality.is_trusted or first is None or first.cure is None or first.question:
        return {}  # a cure that may be none is no ground to stand on
    asked = {  # how much a better cure would win is not told of these
        place: replace(suspect.finding.cure, at_most=())
        for place, suspect in enumerate(ordered[: THEN_COUNT + 1])
        if place and suspect.finding.cure is not None and not suspect.finding.question
    }
    wins = replay.wins(list(asked.values()), (first.cure,))
    return {place: win.speedup_expected for place, win in zip(asked, wins, strict=True)}


def _gain(suspect: Suspect, replay: Replay | None) -> Gain | None:
    win = suspect.win
    if suspect.finding.question:
        return None
    if win is None:
        return _stated_gain(suspect.finding)
    if replay is None or not replay.quality.is_trusted:
        return Gain()
    return Gain(
        seconds=win.seconds_recorded,
        speedup_bound=win.speedup_bound,
        speedup_expected=win.speedup_expected,
        speedup_low=win.speedup_low,
        speedup_high=win.speedup_high,
    )


def _stated_gain(finding: Finding) -> Gain | None:
    stated = (finding.bytes, finding.speedup_bound, finding.speedup_expected)
    if stated == (None, None, None):
        return None
    return Gain(bytes=finding.bytes, speedup_bound=finding.speedup_bound, speedup_expected=finding.speedup_expected)


def _title(rule: Rule, finding: Finding) -> str:
    title = finding.title or rule.about.title
    return f"{title}: {finding.label}" if finding.label else title


def _verify(rule: Rule, finding: Finding) -> str:
    return finding.question or finding.verify or rule.verify


def _ranked(suspect: Suspect, replay: Replay | None, then: float | None) -> RankedFinding:
    rule, finding = suspect.rule, suspect.finding
    return RankedFinding(
        rule=rule.about.id,
        title=_title(rule, finding),
        summary=finding.summary,
        severity=suspect.severity,
        confidence=finding.confidence,
        gain=_gain(suspect, replay),
        same_cause_as=None,
        evidence=finding.evidence,
        fixes=finding.fixes or rule.fixes,
        verify=_verify(rule, finding),
        after_first_speedup=then,
    )


def _follower(follower: Suspect, principal: Suspect) -> RankedFinding:
    rule, finding = follower.rule, follower.finding
    return RankedFinding(
        rule=rule.about.id,
        title=_title(rule, finding),
        summary=finding.summary,
        severity=principal.severity,
        confidence=finding.confidence,
        gain=None,
        same_cause_as=principal.rule.about.id,
        evidence=finding.evidence,
        fixes=finding.fixes or rule.fixes,
        verify=_verify(rule, finding),
    )


def _acquittal(suspect: Suspect, replay: Replay | None) -> RuledOut:
    finding, win = suspect.finding, suspect.win
    words = finding.cleared or finding.summary
    if win is None or (replay is not None and not replay.quality.is_trusted):
        return RuledOut(suspect.rule.about.id, words)
    worth = f"curing it would win {format_share(suspect.share)} of the window ({format_speedup(win.speedup_expected)})"
    return RuledOut(suspect.rule.about.id, f"{words}; {worth}")
