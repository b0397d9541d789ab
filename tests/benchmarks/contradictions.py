"""Counts what cannot be true in the diagnoses of recordings. Run: `python -m tests.benchmarks.contradictions PATH...`.

Each path is diagnosed alone. Prints one line for each contradiction and how many findings of how many recordings were
looked at; the exit code is 1 where there is one.
"""

from __future__ import annotations

import sys

from doctor.api import diagnose
from doctor.errors import DoctorError
from tests.support.contradictions import contradictions


def main(paths: list[str]) -> int:
    """Look at each recording; those that cannot be read are passed over with a word."""
    recordings = findings = found = 0
    for path in paths:
        try:
            diagnosis = diagnose(path)
        except DoctorError as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        lines = contradictions(diagnosis)
        recordings, findings, found = recordings + 1, findings + len(diagnosis.findings), found + len(lines)
        for line in lines:
            print(f"{path}: {line}")
    print(f"{found} contradictions in {findings} findings of {recordings} recordings")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
