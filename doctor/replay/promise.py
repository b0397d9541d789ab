"""What replayed lengths of a window promise: an expected win, a range that is to hold it, and a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

HOST_SPREAD = 1.3
"""Spread of cures that need nothing but the host: what is left to doubt of a cure that takes all there is to take."""
RANGE_KEPT = 0.91
"""Of the logarithm of both errors of a promise. On the half of the samples that constants may be fitted on, every
measured win lies within 0.85 of what whole errors allow; a range that is to hold four fifths of all may be narrower."""


@dataclass(frozen=True)
class Win:
    """What a cure wins in the window.

    Attributes:
        seconds_recorded: removable time, in seconds of the recording.
        share_of_window: that time as a share of the window.
        speedup_bound: at most this, with every error at its worst and all that a better cure would take away too.
        speedup_expected: without the profiler's cost, between a quick and a slow host. Ranking uses this.
        speedup_low: lower end of the expected range.
        speedup_high: upper end of the expected range.
    """

    seconds_recorded: float
    share_of_window: float
    speedup_bound: float
    speedup_expected: float
    speedup_low: float
    speedup_high: float

    @property
    def share_expected(self) -> float:
        """Share of the window that the expected speed-up takes away, 0 to 1."""
        return 1.0 - 1.0 / self.speedup_expected


@dataclass(frozen=True)
class Cured:
    """Length of a window in ns, with a cure.

    Attributes:
        length: of the window.
        least: time that the device is busy whatever the host does; 0 where the cure changes that too.
    """

    length: float
    least: float


@dataclass(frozen=True)
class Lengths:
    """Length of a window in ns.

    Attributes:
        uncured: without the cure.
        cured: with it.
        best: with all that a better cure would take away as well.
        seen_share: of the time that the cure takes away, what lies in the window.
    """

    uncured: float
    cured: Cured
    best: Cured
    seen_share: float

    @property
    def seen_ns(self) -> float:
        """Time of the window that the cure takes away."""
        return self.uncured - self.cured.length

    @property
    def speedup(self) -> float:
        """What the cure wins."""
        return _ratio(self._repeated, self.cured.length)

    @property
    def best_speedup(self) -> float:
        """What a better cure would win."""
        return _ratio(self._repeated, self.best.length)

    @property
    def limit(self) -> float:
        """Amdahl's: no cure of the host wins more than all the time in which the device does not work."""
        return _limit(self._repeated, self.cured)

    @property
    def best_limit(self) -> float:
        """The same for a better cure."""
        return _limit(self._repeated, self.best)

    def beyond(self, slow: Lengths, share: float) -> Lengths:
        """Lengths on a host quicker than this one by a share of the way that `slow` is behind.

        A length is a convex function of the host's times, so the line through two of them is never above it.
        """
        return Lengths(
            _further(self.uncured, slow.uncured, share),
            replace(self.cured, length=max(_further(self.cured.length, slow.cured.length, share), self.cured.least)),
            replace(self.best, length=max(_further(self.best.length, slow.best.length, share), self.best.least)),
            self.seen_share,
        )

    @property
    def _repeated(self) -> float:
        """The window as a part of a loop: with what is outside it and comes back with each round."""
        return self.cured.length + self.seen_ns / self.seen_share


@dataclass(frozen=True)
class Doubt:
    """What is not known of a cure and of the host.

    Attributes:
        spread: factor of uncertainty of the cure.
        beyond: how much quicker than the quick host a host may be, in ways from the slow to the quick one.
    """

    spread: float
    beyond: float


def promise(recorded: Lengths, quick: Lengths, slow: Lengths, doubt: Doubt) -> Win:
    """Expected: the geometric mean of the two hosts.

    Range: the cure's own spread and the hosts' difference, taken as independent errors of the logarithm; a small win
    may be nothing, or half as much again.

    Bound: on whichever host it is most, the quickest that was measured among them, the cure with its whole spread in
    its favour or a better cure with the host's alone.

    A slower host than the recorded one, profiler and all, is not in evidence, so nothing is above what the recorded
    idle time allows.
    """
    middle = math.log(min(math.sqrt(quick.speedup * slow.speedup), recorded.limit))
    of_hosts = RANGE_KEPT * abs(math.log(quick.speedup / slow.speedup)) / 2
    of_cure = RANGE_KEPT * math.log(max(doubt.spread, 1.0))
    below = math.hypot(min(of_cure, middle), of_hosts)
    above = math.hypot(min(of_cure, middle / 2), of_hosts)
    high = min(math.exp(middle + above), recorded.best_limit)
    most = max(_most(lengths, of_cure) for lengths in (quick.beyond(slow, doubt.beyond), quick, slow))
    return Win(
        recorded.seen_ns / 1e9,
        recorded.seen_ns / recorded.uncured if recorded.uncured > 0 else 0.0,
        max(recorded.best_speedup, high, min(most, recorded.best_limit)),
        math.exp(middle),
        math.exp(max(middle - below, 0.0)),
        high,
    )


def _most(lengths: Lengths, of_cure: float) -> float:
    """The most on one host: the cure with its whole spread in its favour, or a better cure with the host's alone."""
    cured, best = math.log(lengths.speedup), math.log(lengths.best_speedup)
    of_host = min(of_cure, RANGE_KEPT * math.log(HOST_SPREAD))
    return math.exp(max(cured + min(of_cure, cured / 2), best + min(of_host, best / 2)))


def _further(quick: float, slow: float, share: float) -> float:
    return max(quick - share * (slow - quick), 0.0)


def _limit(length: float, cured: Cured) -> float:
    return max(length / cured.least, 1.0) if cured.least > 0 else math.inf


def _ratio(before: float, after: float) -> float:
    return max(before / after, 1.0) if after > 0 else 1.0
