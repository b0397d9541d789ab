"""Where in the window the evidence of the findings lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from doctor.diagnosis.outcome import Diagnosis
from doctor.reports import wording
from doctor.rule import Where


@dataclass(frozen=True)
class Place:
    """A stretch of the window, in ns since its start; `finding` counts from 1 as the page does."""

    finding: int
    name: str
    start_ns: int
    end_ns: int


def places(diagnosis: Diagnosis) -> Iterator[Place]:
    """Every place inside the window that evidence of a shown finding names."""
    for number, finding in enumerate(wording.own_findings(diagnosis), start=1):
        for entry in finding.evidence:
            stretch = stretch_of(entry.where, diagnosis)
            if stretch is not None:
                yield Place(number, wording.clean(entry.name), *stretch)


def stretch_of(where: Where | None, diagnosis: Diagnosis) -> tuple[int, int] | None:
    """Start and end in ns since the window began, cut to the window; None where it lies outside or nowhere."""
    window = diagnosis.window
    if where is None or where.start_ns is None or window is None:
        return None
    start_ns = max(where.start_ns, window.start_ns)
    end_ns = min(where.end_ns if where.end_ns is not None else where.start_ns, window.end_ns)
    if start_ns > end_ns:
        return None
    return start_ns - window.start_ns, end_ns - window.start_ns
