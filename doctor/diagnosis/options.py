"""What a user may ask of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DiagnosisOptions:
    """Choices that change what is looked at, never how it is judged.

    Attributes:
        window: start and end of the window in ns on the recording's clock, in place of the steady window.
        range_name: name of an annotation range; the window is from the first such range to the last.
        unprofiled_seconds: measured time of the same window without the profiler, seconds; fixes the profiler's
        share exactly.
        select: ids of the only rules to run; empty means all.
        ignore: ids of rules not to run.
        framework: what the settings to change are wanted for first, in place of what the evidence names.
        is_zoomable: the diagnosis carries the time-line that people zoom into; takes another pass over all work.
    """

    window: tuple[int, int] | None = None
    range_name: str | None = None
    unprofiled_seconds: float | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    framework: str | None = None
    is_zoomable: bool = False
