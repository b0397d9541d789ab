"""Inference Doctor: what is wrong with a slow or out-of-memory LLM inference run, and the setting that cures it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from doctor.version import __version__

if TYPE_CHECKING:
    from doctor.api import diagnose, load, open_case
    from doctor.diagnosis.options import DiagnosisOptions
    from doctor.diagnosis.outcome import Diagnosis, RankedFinding
    from doctor.errors import DoctorError
    from doctor.rule import Severity

__all__ = [
    "Diagnosis",
    "DiagnosisOptions",
    "DoctorError",
    "RankedFinding",
    "Severity",
    "__version__",
    "diagnose",
    "load",
    "open_case",
]

_HOME = {
    "Diagnosis": "doctor.diagnosis.outcome",
    "DiagnosisOptions": "doctor.diagnosis.options",
    "DoctorError": "doctor.errors",
    "RankedFinding": "doctor.diagnosis.outcome",
    "Severity": "doctor.rule",
    "diagnose": "doctor.api",
    "load": "doctor.api",
    "open_case": "doctor.api",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: `doctor --help` needs no DuckDB."""
    if name not in _HOME:
        raise AttributeError(f"module 'doctor' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
