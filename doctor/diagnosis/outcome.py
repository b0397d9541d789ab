"""The diagnosis: one frozen object that every face shows and none computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from doctor.diagnosis.tracks import ZoomableTimeline
from doctor.rule import Evidence, Fix, ProgramKind, Severity

MEASURABLE_SPEEDUP = 1.05
"""A smaller win cannot be told from the noise of a host: its finding is low at most."""


@dataclass(frozen=True)
class EvidenceFile:
    """One file that was read, or should have been.

    Attributes:
        path: as the user named it.
        kind: evidence kind of the contract; `unknown` where nothing was read and it could not be told.
        tool: recorder and its version.
        is_complete: False where part of it could not be read.
        notes: one line each on what was not read or looks wrong.
        sha256: hexadecimal digest of the file as it lies on disk; None where nobody asked for it.
        is_read: False where nothing of it could be read: the diagnosis is that of the others.
        run: 1 for what the diagnosis speaks of; files of other runs are named and not diagnosed.
        run_reason: why the file is of another run, in a few words; empty for run 1.
    """

    path: str
    kind: str
    tool: str | None
    is_complete: bool
    notes: tuple[str, ...]
    sha256: str | None = None
    is_read: bool = True
    run: int = 1
    run_reason: str = ""


@dataclass(frozen=True)
class Window:
    """The steady part of the recording that the diagnosis speaks of.

    Attributes:
        start_ns: start on the clock of the principal source.
        end_ns: end.
        steps: engine steps inside, None where none could be told.
        chosen_by: `nvtx:NAME`, `capture`, `steady`, `--window` or `--range`, and what was cut.
    """

    start_ns: int
    end_ns: int
    steps: int | None
    chosen_by: str

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True)
class Gain:
    """What a cure would win.

    Attributes:
        seconds: removable share of the window, in seconds of the recording.
        speedup_bound: at most this, with every error at its worst and all that a better cure would take away too.
        speedup_expected: corrected for the profiler's own cost and the host's speed; None where no promise is made.
        speedup_low: lower end of the expected range.
        speedup_high: upper end of the expected range.
        bytes: memory that the cure frees; None for time findings.
    """

    seconds: float | None = None
    speedup_bound: float | None = None
    speedup_expected: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    bytes: int | None = None

    @property
    def is_measurable(self) -> bool:
        """False where the expected win, or the most there is where nothing is expected, would drown in noise."""
        most = self.speedup_bound if self.speedup_expected is None else self.speedup_expected
        return most is None or most >= MEASURABLE_SPEEDUP


@dataclass(frozen=True)
class RankedFinding:
    """A finding in its place: the first of a diagnosis is the one whose cure wins most.

    Attributes:
        rule: id.
        title: the problem, with its culprit where it is known.
        summary: one sentence with numbers.
        severity: from the share of the window that the cure frees, or the rule's own.
        confidence: 0 to 1.
        gain: None where another finding of the same group carries it (`same_cause_as`).
        same_cause_as: id of the principal finding of the group.
        evidence: numbers, most telling first.
        fixes: settings, those for the framework of the evidence first.
        verify: how to see that the fix worked.
        after_first_speedup: what curing this wins on top of the first finding's cure; None where it was not replayed.
    """

    rule: str
    title: str
    summary: str
    severity: Severity
    confidence: float
    gain: Gain | None
    same_cause_as: str | None
    evidence: tuple[Evidence, ...]
    fixes: tuple[Fix, ...]
    verify: str
    after_first_speedup: float | None = None


@dataclass(frozen=True)
class RuledOut:
    """What looks guilty and is not, with the number that clears it."""

    rule: str
    because: str


@dataclass(frozen=True)
class NotRun:
    """A rule that lacked evidence, and the evidence kinds that would let it run."""

    rule: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """What was recorded, which decides what advice fits.

    Attributes:
        kind: as far as the recording tells.
        because: what tells it, in a few words; empty where nothing does.
    """

    kind: ProgramKind
    because: str


@dataclass(frozen=True)
class ReplayQuality:
    """How far the replay can be trusted.

    Attributes:
        is_trusted: False means no promised wins.
        identity_error: relative; near zero by construction, only a gate.
        class_median_error: relative error of the replay with class medians instead of each event's own latencies;
        the honest figure.
        host_speed_factor: host slowness relative to a quiet host, where the trace can tell.
        profiler_share: share of the window that the profiler itself took, where it could be told.
        correction: which correction was used: `correlation ids and host probe`, `phi`, `unprofiled seconds`.
        notes: reasons for distrust.
    """

    is_trusted: bool
    identity_error: float
    class_median_error: float
    host_speed_factor: float | None
    profiler_share: float | None
    correction: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TimelineBin:
    """One cell of the coarse time-line: shares of the bin in which the device computed, communicated, copied."""

    start_ns: int
    compute_share: float
    communication_share: float
    copy_share: float


@dataclass(frozen=True)
class KernelRow:
    """One line of the table of top kernels."""

    name: str
    family: str
    count: int
    total_ns: int
    median_ns: int
    share_of_busy: float


@dataclass(frozen=True)
class Display:
    """Bounded data for the faces, so that none of them needs the case."""

    timeline: tuple[TimelineBin, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    zoom: ZoomableTimeline = field(default_factory=ZoomableTimeline)


@dataclass(frozen=True)
class Diagnosis:
    """Everything one run of the catalogue found.

    Attributes:
        evidence: files read, then those that could not be.
        window: steady window; None where the evidence holds no time-line.
        vitals: named figures of the contract (`gpu_busy`, `launches_per_step`, ...), None where unknown.
        findings: ordered, first is principal.
        ruled_out: what looks guilty and is not.
        not_run: rules that lacked evidence.
        replay: trust in the promised wins; None where nothing was replayed.
        checked_count: rules that found the evidence they need, beyond the mere list of files.
        frameworks: the order of the settings to change: the one asked for, then what the evidence names.
        program: what was recorded; None without a time-line.
        display: bounded time-line and tables.
    """

    evidence: tuple[EvidenceFile, ...]
    window: Window | None
    vitals: dict[str, float | None]
    findings: tuple[RankedFinding, ...]
    ruled_out: tuple[RuledOut, ...]
    not_run: tuple[NotRun, ...]
    replay: ReplayQuality | None = None
    checked_count: int = 0
    frameworks: tuple[str, ...] = ()
    program: Program | None = None
    display: Display = field(default_factory=Display)

    @property
    def is_complete(self) -> bool:
        """True where every file of the diagnosed run was read whole."""
        return all(file.is_complete for file in self.evidence if file.run == 1)

    @property
    def worst(self) -> Severity | None:
        """Severity of the worst finding, None where there is none."""
        return max((finding.severity for finding in self.findings), default=None)
