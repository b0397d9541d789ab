"""The findings as tracks of a trace viewer: each a slice over the window, and one wherever its evidence lies."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.convert.perfetto.marks import FindingTrack, Mark
from doctor.diagnosis.outcome import Diagnosis, RankedFinding, Window
from doctor.reports import wording


def finding_tracks(diagnosis: Diagnosis) -> tuple[FindingTrack, ...]:
    """One track a finding, in order; none where the evidence has no time-line to show them on."""
    window = diagnosis.window
    if window is None:
        return ()
    return tuple(
        FindingTrack(f"{place}. {_title(finding)}", (_whole(finding, window), *_places(finding, window)))
        for place, finding in enumerate(diagnosis.findings, start=1)
    )


def _title(finding: RankedFinding) -> str:
    return f"{wording.clean(finding.title)} ({finding.severity.label})"


def _whole(finding: RankedFinding, window: Window) -> Mark:
    fixes = (
        (f"change {place}, {wording.framework(fix.target)}", wording.clean(fix.setting))
        for place, fix in enumerate(wording.shown_fixes(finding), start=1)
    )
    details = (
        ("summary", wording.sentence(finding.summary)),
        ("to win", wording.gain_sentence(finding.gain)),
        ("same cause as", wording.clean(finding.same_cause_as or "")),
        *fixes,
        ("verify", wording.sentence(finding.verify)),
        ("more", f"doctor explain {finding.rule}"),
    )
    told = tuple((name, text) for name, text in details if text)
    return Mark(_title(finding), window.start_ns, window.end_ns, told)


def _places(finding: RankedFinding, window: Window) -> Iterator[Mark]:
    for entry in finding.evidence:
        where = entry.where
        if where is not None and where.start_ns is not None:
            end_ns = where.end_ns if where.end_ns is not None else where.start_ns
            details = (("value", wording.evidence_value(entry)), ("where", wording.place(where, window)))
            yield Mark(wording.clean(entry.name), where.start_ns, max(end_ns, where.start_ns), details)
