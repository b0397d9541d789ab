"""The names that other programs import."""

from __future__ import annotations

import subprocess
import sys

import doctor

PUBLIC = [
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


def test_the_public_names_are_these_in_this_order() -> None:
    assert doctor.__all__ == PUBLIC
    assert sorted(PUBLIC) == PUBLIC


def test_every_public_name_is_there_and_documented() -> None:
    for name in PUBLIC:
        value = getattr(doctor, name)
        assert isinstance(value, str) or value.__doc__


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = "import sys, doctor; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"duckdb", "pyarrow", "sqlalchemy", "numpy", "rich", "textual", "torch"} & set(loaded)
