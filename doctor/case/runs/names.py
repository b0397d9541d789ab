"""Failures of several runs that lie side by side, told apart by the names of their files.

A failure carries nothing that only one run has, so that two of them look like two tries of one. Where each has files
of its own name beside it (`first.txt`, `first.pickle`; `second.txt`, `second.nvml.json`) or a folder of its own, the
name is that of the run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

Failures = Sequence[tuple[int | None, int | None]]
"""Bytes that were asked for and bytes that were free, of each failure that a file tells of."""
LEAST_FILES = 2
"""A name that several files share is that of a run; a single file may be called anything."""
MOST_ROUNDING = 0.01
"""Texts print sizes with two decimals."""
_DIGITS = re.compile(r"\d+")
_RUN_NUMBER = re.compile(r"(?:^|[^a-z])(?:run|case|exp|experiment|trial|test|sample|job|try|attempt|v)[ _-]?$")
"""A number behind such a word counts runs; behind any other (`rank0`, `gpu1`) parts of one."""


def runs_by_name(files: Mapping[str, Failures]) -> dict[str, str]:
    """The run that each file is named after; empty where names do not tell runs apart.

    Args:
        files: by path as the user named it, what failed in each.
    """
    failed = [path for path, failures in files.items() if failures]
    folders = {str(PurePath(path).parent) for path in failed}
    names = {path: str(PurePath(path).parent) if len(folders) > 1 else _stem(path) for path in files}
    counts = Counter(names.values())
    runs = {path: name for path, name in names.items() if counts[name] >= LEAST_FILES}
    rivals = {runs[path] for path in failed if path in runs}
    if len(rivals) < 2 or _are_parts(rivals) or _tell_the_same(files, runs, rivals):
        return {}
    return runs


def _stem(path: str) -> str:
    return PurePath(path).name.partition(".")[0]


def _are_parts(names: Iterable[str]) -> bool:
    """Names that differ in a number alone are of the ranks of one run, unless the number counts runs."""
    listed = [PurePath(name).name.lower() for name in names]
    if len({_DIGITS.sub("#", name) for name in listed}) > 1:
        return False
    return not any(_RUN_NUMBER.search(part) for part in _DIGITS.split(listed[0])[:-1])


def _tell_the_same(files: Mapping[str, Failures], runs: Mapping[str, str], rivals: Iterable[str]) -> bool:
    """One failure of two names is one failure."""
    told = [
        [failure for path, failures in files.items() if runs.get(path) == rival for failure in failures]
        for rival in sorted(rivals)
    ]
    return any(
        _alike(one, two)
        for place, ones in enumerate(told)
        for twos in told[place + 1 :]
        for one in ones
        for two in twos
    )


def _alike(one: tuple[int | None, int | None], two: tuple[int | None, int | None]) -> bool:
    pairs = zip(one, two, strict=True)
    return all(a is not None and b is not None and abs(a - b) <= MOST_ROUNDING * max(a, b) for a, b in pairs)
