"""What the page says, worded: the template only lays it out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from doctor.diagnosis.outcome import Diagnosis, EvidenceFile, KernelRow, NotRun, RankedFinding
from doctor.diagnosis.tracks import STREAM_KINDS
from doctor.reports import wording
from doctor.reports.collecting import Recipe, recipe_for
from doctor.reports.html_page.coarse import Coarse, coarse
from doctor.reports.html_page.places import stretch_of
from doctor.reports.runs import other_runs_line
from doctor.rule import Evidence, Fix
from doctor.units import format_speedup
from doctor.version import __version__


@dataclass(frozen=True)
class FixLine:
    """A setting as typed, and why."""

    setting: str
    why: str


@dataclass(frozen=True)
class FrameworkFixes:
    """The settings of one framework."""

    name: str
    fixes: tuple[FixLine, ...]


@dataclass(frozen=True)
class EvidenceLine:
    """One number; `start` and `end` in ns since the window began, None where it lies nowhere in it."""

    name: str
    value: str
    place: str
    start: int | None
    end: int | None


@dataclass(frozen=True)
class FindingView:
    """A finding with a win of its own, and the titles of those that its cure cures too."""

    place: int
    rule: str
    title: str
    severity: str
    confidence: str
    summary: str
    gain: str
    after_first: str
    evidence: tuple[EvidenceLine, ...]
    fixes: tuple[FrameworkFixes, ...]
    verify: str
    same_cause: tuple[str, ...]


@dataclass(frozen=True)
class KernelView:
    """One line of the table; the plain numbers are what it is sorted by."""

    name: str
    family: str
    share: str
    count: str
    median: str
    share_value: float
    count_value: int
    median_value: int
    bar: str


@dataclass(frozen=True)
class MissingView:
    """A kind of evidence that is missing, how to collect it, and the rules that it would let run."""

    recipe: Recipe
    rules: tuple[str, ...]


@dataclass(frozen=True)
class FileView:
    """One file: base name only, never its folder; `extent` says how much of it was read."""

    name: str
    kind: str
    tool: str
    extent: str
    sha256: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RuledOutView:
    """What looks guilty and is not."""

    rule: str
    because: str


@dataclass(frozen=True)
class Legend:
    """What the colours mean in one sort of rows: the kinds in the order of the colours."""

    rows: str
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """Everything that the template shows."""

    version: str
    headline: str
    first: FindingView | None
    subject: str
    sections: tuple[tuple[str, str], ...]
    incomplete: tuple[str, ...]
    other_runs: str
    vitals: tuple[str, ...]
    window: str
    coarse: Coarse | None
    legend: tuple[Legend, ...]
    findings: tuple[FindingView, ...]
    kernels: tuple[KernelView, ...]
    ruled_out: tuple[RuledOutView, ...]
    missing: tuple[MissingView, ...]
    without_work: tuple[str, ...]
    files: tuple[FileView, ...]
    replay: tuple[str, ...]


def page_of(diagnosis: Diagnosis) -> Page:
    """The page of a diagnosis."""
    findings = tuple(
        _finding(diagnosis, finding, place) for place, finding in enumerate(wording.own_findings(diagnosis), start=1)
    )
    principal = wording.principal(diagnosis)
    first = next((view for view in findings if principal is not None and view.rule == principal.rule), None)
    window = wording.window_sentence(diagnosis.window)
    parts: dict[str, tuple[object, ...]] = {
        "vitals": wording.vitals_parts(diagnosis),
        "timeline": diagnosis.display.timeline or diagnosis.display.zoom.tracks,
        "findings": findings,
        "kernels": diagnosis.display.kernels,
        "ruled-out": diagnosis.ruled_out,
        "not-run": diagnosis.not_run,
        "provenance": (window,),
    }
    return Page(
        version=__version__,
        headline=wording.verdict(diagnosis) if first is None else first.title,
        first=first,
        subject=", ".join(dict.fromkeys(wording.evidence_sentence(file) for file in diagnosis.evidence)),
        sections=tuple((anchor, title) for anchor, title in _SECTIONS if parts[anchor]),
        incomplete=wording.incomplete_lines(diagnosis),
        other_runs=other_runs_line(diagnosis),
        vitals=tuple(f"{part[0].upper()}{part[1:]}" for part in wording.vitals_parts(diagnosis)),
        window=f"{window[0].upper()}{window[1:]}",
        coarse=coarse(diagnosis),
        legend=_legend(diagnosis),
        findings=findings,
        kernels=tuple(_kernel(row) for row in diagnosis.display.kernels),
        ruled_out=tuple(
            RuledOutView(wording.clean(entry.rule), wording.sentence(entry.because)) for entry in diagnosis.ruled_out
        ),
        missing=_missing(diagnosis),
        without_work=_without_work(diagnosis),
        files=tuple(_file(file) for file in diagnosis.evidence),
        replay=_replay(diagnosis),
    )


_SECTIONS = (
    ("vitals", "Vitals"),
    ("timeline", "Time-line"),
    ("findings", "Findings"),
    ("kernels", "Kernels"),
    ("ruled-out", "Ruled out"),
    ("not-run", "Not checked"),
    ("provenance", "Provenance"),
)


def _finding(diagnosis: Diagnosis, finding: RankedFinding, place: int) -> FindingView:
    after = finding.after_first_speedup
    return FindingView(
        place=place,
        rule=wording.clean(finding.rule),
        title=wording.clean(finding.title),
        severity=finding.severity.label,
        confidence=f"{finding.confidence:.0%}",
        summary=wording.sentence(finding.summary),
        gain=wording.gain_sentence(finding.gain),
        after_first="" if after is None else format_speedup(after),
        evidence=tuple(_evidence(diagnosis, entry) for entry in finding.evidence),
        fixes=_fixes(wording.shown_fixes(finding)),
        verify=wording.sentence(finding.verify),
        same_cause=tuple(wording.clean(follower.title) for follower in wording.followers(diagnosis, finding)),
    )


def _evidence(diagnosis: Diagnosis, entry: Evidence) -> EvidenceLine:
    start, end = stretch_of(entry.where, diagnosis) or (None, None)
    place = wording.place(entry.where, diagnosis.window)
    return EvidenceLine(wording.clean(entry.name), wording.evidence_value(entry), place, start, end)


def _fixes(fixes: tuple[Fix, ...]) -> tuple[FrameworkFixes, ...]:
    """By framework, in their order."""
    order = list(dict.fromkeys(fix.target for fix in fixes))
    ordered = sorted(fixes, key=lambda fix: order.index(fix.target))
    return tuple(
        FrameworkFixes(
            wording.framework(target),
            tuple(FixLine(wording.clean(fix.setting), wording.sentence(fix.why)) for fix in group),
        )
        for target, group in groupby(ordered, key=lambda fix: fix.target)
    )


def _kernel(row: KernelRow) -> KernelView:
    share, count, median, family, name = wording.kernel_cells(row)
    return KernelView(
        name,
        family,
        share,
        count,
        median,
        round(row.share_of_busy, 6),
        row.count,
        row.median_ns,
        f"{100 * row.share_of_busy:.1f}",
    )


def _missing(diagnosis: Diagnosis) -> tuple[MissingView, ...]:
    """What would let rules run, most rules first; any one kind that a rule needs is enough for it."""
    rules: dict[Recipe, set[str]] = {}
    for entry in diagnosis.not_run:
        if not _is_given(entry, diagnosis):
            for kind in entry.needs:
                rules.setdefault(recipe_for(wording.clean(kind)), set()).add(wording.clean(entry.rule))
    views = (MissingView(recipe, tuple(sorted(names))) for recipe, names in rules.items())
    return tuple(sorted(views, key=lambda view: (-len(view.rules), view.recipe.kind)))


def _without_work(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Rules whose evidence is here, but holds nothing that they look at."""
    return tuple(sorted(wording.clean(entry.rule) for entry in diagnosis.not_run if _is_given(entry, diagnosis)))


def _is_given(entry: NotRun, diagnosis: Diagnosis) -> bool:
    return bool(wording.kinds_read(diagnosis) & set(entry.needs))


def _file(file: EvidenceFile) -> FileView:
    return FileView(
        wording.clean(PurePath(file.path).name or file.path),
        wording.clean(file.kind),
        wording.clean(file.tool) if file.tool else "not said",
        _how_read(file),
        file.sha256 or "not computed",
        tuple(wording.sentence(note) for note in file.notes),
    )


def _how_read(file: EvidenceFile) -> str:
    if not file.is_read:
        return "not read"
    return "of another run" if file.run > 1 else "whole" if file.is_complete else "in part"


def _replay(diagnosis: Diagnosis) -> tuple[str, ...]:
    if diagnosis.replay is None:
        return ()
    notes = (wording.sentence(note) for note in diagnosis.replay.notes)
    return wording.replay_sentence(diagnosis.replay), *notes


def _legend(diagnosis: Diagnosis) -> tuple[Legend, ...]:
    """A colour means one thing in the rows of streams and another in those of threads."""
    sets = dict.fromkeys(track.kinds for track in diagnosis.display.zoom.tracks)
    return tuple(Legend("GPU" if kinds == STREAM_KINDS else "Host", kinds) for kinds in sets)
