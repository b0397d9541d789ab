"""What is asked of the loading process, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.outcome import Diagnosis


@dataclass(frozen=True)
class LoadRequest:
    """What to load.

    Attributes:
        paths: files, folders or patterns, as typed.
        options: the window and the rules.
        folder: an empty folder for the case; whoever asks removes it.
        rules: folder with further rules.
        reader: who reads a native report, `native` or `nsys`.
    """

    paths: tuple[str, ...]
    options: DiagnosisOptions
    folder: Path
    rules: Path | None = None
    reader: str = "native"


@dataclass(frozen=True)
class Reading:
    """How far one file is read."""

    name: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Stage:
    """Work that cannot say how far it is: `deriving`, `diagnosing`."""

    name: str


@dataclass(frozen=True)
class CaseReady:
    """The case is derived and closed: others may open it read-only, while it is being diagnosed."""

    case: Path
    passed_by: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosed:
    """The end of the work."""

    diagnosis: Diagnosis


@dataclass(frozen=True)
class LoadFailed:
    """The end of the work: one line that says why and what to do."""

    message: str


LoadEvent = Reading | Stage | CaseReady | Diagnosed | LoadFailed
"""Everything that the loading process reports; it ends with `Diagnosed` or `LoadFailed`."""
