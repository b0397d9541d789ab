"""What a rule, its verdict and its cure are: frozen data, no SQL engine, no terminal, no torch.

A rule states one SELECT over the case file, judges its rows, and returns evidence with a cure. It never states a win
or a severity: the
diagnosis replays the run with the cure and computes both. Rules about memory, hardware and the recording itself have
no cure; they state
bytes or a severity of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple


class Severity(IntEnum):
    """How much a finding matters; comparable. Bands of the share of the window that a cure frees: see `of_share`."""

    INFO = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4

    @property
    def label(self) -> str:
        """The lower-case name used in output."""
        return self.name.lower()

    @classmethod
    def of_share(cls, share: float) -> Severity:
        """Severity of a cure that would free `share` (0 to 1) of the window."""
        bands = ((0.30, cls.CRITICAL), (0.15, cls.HIGH), (0.05, cls.MEDIUM), (0.02, cls.LOW))
        return next((severity for least, severity in bands if share >= least), cls.INFO)


class Stage(StrEnum):
    """Place of a rule in the decision order; rules of an earlier stage are looked at first."""

    RECORDING = "recording"
    """Can this evidence be trusted at all?"""
    HARDWARE = "hardware"
    MEMORY = "memory"
    SPECIFIC = "specific"
    """A time cause with one identifiable origin; wins ties against general ones, which the profiler inflates."""
    GENERAL = "general"
    """A time cause that is what remains, such as dispatch."""
    OPPORTUNITY = "opportunity"
    """Worth knowing, never the first finding."""


class ProgramKind(StrEnum):
    """What a recorded program is, as far as its work tells; advice that helps one may mean nothing to another."""

    TRAINING = "training"
    """Forward and backward passes, and an optimizer."""
    GENERATION = "generation"
    """A language model that writes token by token, with a KV cache."""
    ENCODER = "encoder"
    """Whole passes of a transformer, from which nothing is written on: embeddings, classes, scores."""
    VISION = "vision"
    """Whole passes of a network of convolutions."""
    UNKNOWN = "unknown"


class Target(StrEnum):
    """What the ids of a cure's rows name."""

    HOST_CALL = "host_call"
    """The call itself: its own time, its wait."""
    SILENCE = "silence"
    """The silence of the thread before a call, named by that call's id."""
    DEVICE_OP = "device_op"
    """A kernel, copy, memory set or graph launch on the device."""


class Act(StrEnum):
    """What a cure does with its rows."""

    REMOVE = "remove"
    """A call or silence takes no time and waits for nothing; an operation is dropped from its stream."""
    NO_WAIT = "no_wait"
    """A blocking call returns at once; its own time stays."""
    SCALE = "scale"
    """Duration times the row's value, or the act's value where the row has none."""
    SET_DURATION_NS = "set_duration_ns"
    """Duration becomes the row's value in ns, or the act's value where the row has none; never longer than it was."""
    MOVE_TO_SIDE_STREAM = "move_to_side_stream"
    """An operation runs on a stream of its own and holds up nobody."""


@dataclass(frozen=True)
class CureStep:
    """One SELECT and what happens to its rows.

    Attributes:
        target: what the ids in the first column name.
        act: what is done with them.
        sql: a SELECT over the case file; first column an id, second column (optional) a value for `act`.
        values: bound parameters of `sql`, by name (`$name`).
        value: value for `act` where the SELECT has no second column.
    """

    target: Target
    act: Act
    sql: str
    values: Mapping[str, Any] = field(default_factory=dict)
    value: float | None = None


@dataclass(frozen=True)
class Cure:
    """What the run would be without the problem.

    Attributes:
        steps: applied together.
        is_host_work: the cure saves host time only, so its win is clamped to the time the device was idle.
        device_divisor: for cures that merge device work: the win is clamped to window - busy / device_divisor.
        spread: factor of uncertainty of this class of cure (1.3 host, 1.5 replaced kernels, 2.0 structural).
        at_most: what a better cure of the same problem takes away as well; counts for the bound alone.
        seen_share: of the time that the cure takes away in a loop, the share that lies in the window: between n steps
            there are n - 1 pauses.
    """

    steps: tuple[CureStep, ...]
    is_host_work: bool = True
    device_divisor: float = 1.0
    spread: float = 1.3
    at_most: tuple[CureStep, ...] = ()
    seen_share: float = 1.0


@dataclass(frozen=True)
class Threshold:
    """A number a rule compares with, its unit, and where it comes from."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class Fix:
    """A setting to change.

    Attributes:
        target: pytorch, vllm, sglang, tensorrt-llm, lmdeploy, tgi, transformers, engine (options of `python -m
            engine`) or system.
        setting: the exact setting, as typed.
        why: what it does about the problem.
        source: documentation or public case behind it.
        fits: kinds of program that it is for; empty where it is for any.
    """

    target: str
    setting: str
    why: str
    source: str = ""
    fits: tuple[ProgramKind, ...] = ()


@dataclass(frozen=True)
class Where:
    """A place in the recording."""

    start_ns: int | None = None
    end_ns: int | None = None
    range: str | None = None
    device_id: int | None = None
    stream_id: int | None = None
    pid: int | None = None
    tid: int | None = None


@dataclass(frozen=True)
class Evidence:
    """One measured number."""

    name: str
    value: float | str
    unit: str
    where: Where | None = None


@dataclass(frozen=True)
class Finding:
    """A rule's verdict that the problem is there.

    Attributes:
        summary: one sentence with numbers.
        evidence: the numbers, most telling first.
        cure: what the run would be without it; None for rules that state bytes or a severity.
        confidence: 0 to 1.
        severity: for rules without a cure; otherwise computed from the replayed win.
        bytes: memory at stake.
        cleared: what to say when the cure turns out to win next to nothing.
        fixes: replaces the rule's fixes where the trace allows exact numbers.
        speedup_bound: at most this, for rules without a cure whose evidence says so (a log, a table); None otherwise.
        speedup_expected: what is likely, likewise.
        title: replaces the rule's, where the evidence shows another form of the problem.
        label: names the culprit in the finding's title, such as the range of a step gap.
        max_severity: a cap, for causes seen once only.
        verify: replaces the rule's, where the problem has several causes and each is seen to be gone in its own way.
        question: what settles whether there is a problem at all, where the evidence cannot tell. Such a finding is
            ranked by its replayed win and promises none; the question stands in place of `verify`.
    """

    summary: str
    evidence: tuple[Evidence, ...]
    cure: Cure | None = None
    confidence: float = 0.8
    severity: Severity | None = None
    bytes: int | None = None
    speedup_bound: float | None = None
    speedup_expected: float | None = None
    cleared: str = ""
    fixes: tuple[Fix, ...] = ()
    title: str = ""
    label: str = ""
    max_severity: Severity = Severity.CRITICAL
    verify: str = ""
    question: str = ""


@dataclass(frozen=True)
class Cleared:
    """A rule's verdict that something looks guilty and is not."""

    because: str


Verdict = Finding | Cleared | None


@dataclass(frozen=True)
class About:
    """Metadata of a rule.

    Attributes:
        id: stable name; the file is the id with underscores.
        title: the problem in a few words.
        stage: place in the decision order.
        reads: tables that must hold rows; otherwise the rule is not run and says what it needs.
        needs: evidence kinds that would fill them, in the contract's names.
        group: rules that share one win; the principal has the gain, the others follow it.
        group_rank: 0 is the principal.
    """

    id: str
    title: str
    stage: Stage
    reads: tuple[str, ...]
    needs: tuple[str, ...]
    group: str = ""
    group_rank: int = 0


@dataclass(frozen=True)
class Sign:
    """Another way to see the same problem, in another kind of evidence.

    Attributes:
        reads: tables that must hold rows for this sign to be looked for.
        needs: evidence kinds that would fill them.
        sql: one SELECT over the case file, with the rule's thresholds bound.
        row: NamedTuple with a field per column of `sql`.
        judge: row to verdict; pure.
    """

    reads: tuple[str, ...]
    needs: tuple[str, ...]
    sql: str
    row: type[Any]
    judge: Callable[[Any], Verdict]


class PartOfSums(NamedTuple):
    """A part of the time that a profile's sums tell; the columns that the SELECT of `asked_of_sums` gives."""

    part_count: int
    part_ns: int
    whole_ns: int
    largest: str | None


def asked_of_sums(sql: str, least_share: float, told: str, question: str) -> Sign:
    """A sign that asks where the sums of a profile (`nsys stats`, nvprof, `key_averages`) hold much of a problem.

    Args:
        sql: gives one `PartOfSums`, or none.
        least_share: of the whole, from which on it is asked.
        told: behind the share, such as `of the time of matrix products is fp32`.
        question: what the recording settles; sums promise nothing.
    """

    def judge(row: PartOfSums) -> Verdict:
        if not row.part_ns or not row.whole_ns or row.part_ns < least_share * row.whole_ns:
            return None
        share = row.part_ns / row.whole_ns
        return Finding(
            summary=f"{share:.0%} {told} ({row.part_count:,} kernels; most of it: {(row.largest or '')[:80]})",
            evidence=(Evidence(told, share, "share"), Evidence("kernels", row.part_count, "kernels")),
            severity=Severity.MEDIUM,
            confidence=0.65,
            question=question,
        )

    return Sign(("profile_sum",), ("nsys-report", "nsys-sqlite", "kineto"), sql, PartOfSums, judge)


@dataclass(frozen=True)
class Rule:
    """One documented problem.

    Attributes:
        about: metadata.
        thresholds: by name; all are bound to `sql` where it names them (`$name`), the rest are for `judge`.
        sql: one SELECT over the case file.
        row: NamedTuple with a field per column of `sql`.
        judge: row to verdict; pure.
        fixes: per framework.
        verify: how to see that a fix worked.
        doc: the file's docstring, the manual page.
        also: other signs of the problem; the rule is not run only where no sign can be looked for.
    """

    about: About
    thresholds: Mapping[str, Threshold]
    sql: str
    row: type[Any]
    judge: Callable[[Any], Verdict]
    fixes: tuple[Fix, ...]
    verify: str
    doc: str
    also: tuple[Sign, ...] = ()

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Every way to see the problem, the principal one first."""
        about = self.about
        return (Sign(about.reads, about.needs, self.sql, self.row, self.judge), *self.also)

    @property
    def needs(self) -> tuple[str, ...]:
        """Kinds of evidence that some sign of the problem shows in; one of them is enough."""
        return tuple(dict.fromkeys(need for sign in self.signs for need in sign.needs))
