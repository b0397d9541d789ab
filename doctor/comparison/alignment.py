"""Which steps of one run are held against which of another: prefill against prefill, decode against decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from doctor.comparison.kernels import KernelShape, KernelUse, added
from doctor.comparison.outcome import LeftOut

USUAL, UNUSUAL, ALL = "usual", "unusual", "all"
LEAST_SHARED = 0.5
"""Of the steps of each run, for kinds of one name in both; with fewer, the recorders name their steps differently."""
ENOUGH = 3
"""Steps of a kind that say more than chance."""


@dataclass(frozen=True)
class StepGroup:
    """Steps of one kind.

    Attributes:
        seconds: their lengths, in order.
        kernels: that they launched.
        device_seconds: time of their device work, added up over streams.
    """

    seconds: tuple[float, ...] = ()
    kernels: Mapping[KernelShape, KernelUse] = field(default_factory=dict)
    device_seconds: float = 0.0

    @property
    def device_share(self) -> float:
        """At least so much of the time is the device's, 0 to 1: no recorder and no host changes that."""
        return min(self.device_seconds / max(sum(self.seconds), 1e-12), 1.0)


@dataclass(frozen=True)
class StepKind:
    """What a step is: `prefill`, `decode`, `usual` or `unusual`, and whether it holds about as much work as most."""

    phase: str
    is_usual: bool


Steps = Mapping[StepKind, StepGroup]


@dataclass(frozen=True)
class Pair:
    """Steps of one kind on both sides, neither empty."""

    subject: str
    before: StepGroup
    after: StepGroup

    @property
    def is_ample(self) -> bool:
        """True where chance in single steps evens out."""
        return min(len(self.before.seconds), len(self.after.seconds)) >= ENOUGH

    @property
    def seconds(self) -> float:
        """Time of the steps of both sides."""
        return sum(self.before.seconds) + sum(self.after.seconds)


@dataclass(frozen=True)
class Alignment:
    """Pairs of like steps, ample ones first, then by time; and the steps that have no like on the other side."""

    pairs: tuple[Pair, ...]
    left_out: tuple[LeftOut, ...]


def align(before: Steps, after: Steps) -> Alignment:
    """Pair the kinds that both runs have.

    Recorders name kinds differently: runs that have no name in common for most of their steps are compared by the steps
    that hold about as much work as most of their own run, and failing that by all of them.
    """
    for name in (_phase, _usual, _all):
        sides = tuple(_gathered(side, name) for side in (before, after))
        shared = [kind for kind in sides[0] if kind != UNUSUAL and kind in sides[1]]
        if shared and (name is not _phase or all(_covers(side, shared) for side in sides)):
            pairs = [Pair(kind, sides[0][kind], sides[1][kind]) for kind in shared]
            pairs.sort(key=lambda pair: (not pair.is_ample, -pair.seconds))
            return Alignment(tuple(pairs), tuple(_left_out(sides[0], sides[1], shared)))
    return Alignment((), ())


def _phase(kind: StepKind) -> str:
    return kind.phase


def _usual(kind: StepKind) -> str:
    return USUAL if kind.is_usual else UNUSUAL


def _all(kind: StepKind) -> str:
    return ALL


def _gathered(steps: Steps, name: Callable[[StepKind], str]) -> dict[str, StepGroup]:
    """Groups of one name as one; a group without time is none."""
    groups: dict[str, list[StepGroup]] = {}
    for kind, group in steps.items():
        groups.setdefault(name(kind), []).append(group)
    joined = {subject: _joined(parts) for subject, parts in groups.items()}
    return {subject: group for subject, group in joined.items() if sum(group.seconds) > 0}


def _joined(groups: Sequence[StepGroup]) -> StepGroup:
    if len(groups) == 1:
        return groups[0]
    kernels = added(use for group in groups for use in group.kernels.items())
    seconds = tuple(length for group in groups for length in group.seconds)
    return StepGroup(seconds, kernels, sum(group.device_seconds for group in groups))


def _covers(side: Mapping[str, StepGroup], shared: Sequence[str]) -> bool:
    counts = {kind: len(group.seconds) for kind, group in side.items()}
    return sum(counts[kind] for kind in shared) >= LEAST_SHARED * sum(counts.values())


def _left_out(before: Mapping[str, StepGroup], after: Mapping[str, StepGroup], shared: Sequence[str]) -> list[LeftOut]:
    return [
        LeftOut(side, kind, len(group.seconds), sum(group.seconds))
        for side, groups in (("before", before), ("after", after))
        for kind, group in groups.items()
        if kind not in shared
    ]
