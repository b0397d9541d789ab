"""The findings as the trace shows them: plain values, so that this package needs no diagnosis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A stretch of time that a finding speaks of.

    Attributes:
        name: what is shown on the slice.
        start_ns: on the clock of the case.
        end_ns: its end.
        details: shown when the slice is selected, by name.
    """

    name: str
    start_ns: int
    end_ns: int
    details: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FindingTrack:
    """One finding: its track, the slice of the whole window, and a slice for each piece of evidence with a place."""

    title: str
    marks: tuple[Mark, ...]
