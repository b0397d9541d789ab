"""What is said where the evidence holds more than one run: one is diagnosed, the others are named."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import PurePath

from doctor.diagnosis.outcome import Diagnosis, EvidenceFile
from doctor.reports import wording

_MOST_RUNS = 3
_MOST_FILES = 4


def other_runs_line(diagnosis: Diagnosis) -> str:
    """One line: how many runs there are, which one this is, how to diagnose the others; empty where there is one."""
    runs = [tuple(files) for _, files in groupby(diagnosis.evidence, key=lambda file: file.run)]
    mine = [file for file in diagnosis.evidence if file.run == 1]
    others = [files for files in runs if files[0].run > 1]
    if not others:
        return ""
    told = "; ".join(f"`doctor diagnose {_names(files)}` ({_reason(files)})" for files in others[:_MOST_RUNS])
    more = f"; and {len(others) - _MOST_RUNS} more" if len(others) > _MOST_RUNS else ""
    return (
        f"{len(others) + 1} runs in this evidence. Diagnosed: {_names(mine)}. The others, each by itself: {told}{more}"
    )


def _names(files: Sequence[EvidenceFile]) -> str:
    names = [shlex.quote(wording.clean(PurePath(file.path).name or file.path)) for file in files]
    names = list(dict.fromkeys(names))
    return " ".join(names[:_MOST_FILES]) + (" ..." if len(names) > _MOST_FILES else "")


def _reason(files: Sequence[EvidenceFile]) -> str:
    return next((wording.clean(file.run_reason) for file in files if file.run_reason), "another run")
