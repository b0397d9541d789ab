"""What is said where the evidence holds more than one run: one is diagnosed, the others are named."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import PurePath

from doctor.diagnosis.outcome import Diagnosis, EvidenceFile
from doctor.reports import wording

_MOST_RUNS = 3
_MOST_FILES = 4
_SHOWN_OF_MANY = 1
_FILES_OF_MANY = 2
"""Where there are more runs than `_MOST_RUNS`: an example shows how to diagnose another, and a list would hide it."""


def other_runs_line(diagnosis: Diagnosis) -> str:
    """One line: how many runs there are, which one this is, how to diagnose the others; empty where there is one.

    Files are named without their folders, for pages that others read.
    """
    return _line(diagnosis, lambda file: PurePath(file.path).name)


def other_runs_line_as_typed(diagnosis: Diagnosis) -> str:
    """The same with paths as they were given, for the one who gave them: the commands in it can be run."""
    return _line(diagnosis, lambda file: file.path)


def _line(diagnosis: Diagnosis, name: Callable[[EvidenceFile], str]) -> str:
    runs = [tuple(files) for _, files in groupby(diagnosis.evidence, key=lambda file: file.run)]
    mine = [file for file in diagnosis.evidence if file.run == 1]
    others = [files for files in runs if files[0].run > 1]
    if not others:
        return ""
    is_many = len(others) > _MOST_RUNS
    shown, most = (others[:_SHOWN_OF_MANY], _FILES_OF_MANY) if is_many else (others, _MOST_FILES)
    told = "; ".join(f"`doctor diagnose {_names(files, name, most)}` ({_reason(files)})" for files in shown)
    more = f"; and {len(others) - len(shown)} more" if is_many else ""
    here = f"{len(others) + 1} runs in this evidence. Diagnosed: {_names(mine, name, most)}"
    return f"{here}{'' if here.endswith('...') else '.'} The others, each by itself: {told}{more}"


def _names(files: Sequence[EvidenceFile], name: Callable[[EvidenceFile], str], most: int) -> str:
    names = list(dict.fromkeys(shlex.quote(wording.clean(name(file) or file.path)) for file in files))
    return " ".join(names[:most]) + (" ..." if len(names) > most else "")


def _reason(files: Sequence[EvidenceFile]) -> str:
    return next((wording.clean(file.run_reason) for file in files if file.run_reason), "another run")
