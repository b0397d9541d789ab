"""`expected.json` of a sample: what a diagnosis must say, from how the recording was made and what was measured.

    {"first": "host-dispatch-bound",
     "allowed": ["cudagraph-off"],
     "ruled_out": ["sync-in-step"],
     "measured_speedup": {"host-dispatch-bound": {"median": 4.3, "low": 4.1, "high": 4.6}},
     "half": "test",
     "evidence": [["run.nsys-rep"], ["oom.txt", "snapshot.pickle"]]}

`first` is null where nothing above low may be found. `low` and `high` are the slowest and the fastest of several
measurements, null where there was one. `half` is `fit` where constants may be tuned on the sample, `test` where not.
`evidence` is left out where each recording stands alone and everything else belongs together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from doctor.errors import UsageError

FILE_NAME = "expected.json"
_MOST_BYTES = 2**20
_FIELDS = {"first", "allowed", "ruled_out", "measured_speedup", "half", "evidence"}


class Half(StrEnum):
    """What a sample is for."""

    FIT = "fit"
    TEST = "test"


@dataclass(frozen=True)
class MeasuredSpeedup:
    """Time of the ill run over that of the cured one, without a profiler; ends of the range None where unknown."""

    median: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Expected:
    """What is known of a sample.

    Attributes:
        first: rule of the first finding; None where nothing above low may be found.
        allowed: rules that may follow.
        ruled_out: rules that must be cleared.
        measured_speedup: what the cure of a rule brought.
        half: what the sample may be used for.
        evidence: names of files that are diagnosed together; empty where that is told by their kind.
    """

    first: str | None
    allowed: frozenset[str]
    ruled_out: frozenset[str]
    measured_speedup: Mapping[str, MeasuredSpeedup]
    half: Half
    evidence: tuple[tuple[str, ...], ...] = ()

    @property
    def rules(self) -> frozenset[str]:
        """Every rule that is named."""
        return self.allowed | self.ruled_out | self.measured_speedup.keys() | ({self.first} if self.first else set())


def read_expected(path: Path) -> Expected:
    """Read an `expected.json`.

    Raises:
        UsageError: it cannot be read, a field is missing, unknown or of another form.
    """
    try:
        text = path.read_text("utf-8") if path.stat().st_size <= _MOST_BYTES else ""
        fields = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON that can be read: {str(error).splitlines()[0]}") from error
    if not isinstance(fields, dict):
        raise UsageError(f"{path} is no JSON object: see `doctor score --help`")
    unknown = sorted(map(str, fields.keys() - _FIELDS))
    missing = sorted(_FIELDS - {"evidence"} - fields.keys())
    if unknown or missing:
        what = f"has an unknown field {unknown[0]}" if unknown else f"lacks the field {missing[0]}"
        raise UsageError(f"{path} {what}: fields are {', '.join(sorted(_FIELDS))}")
    try:
        return _expected(fields)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(f"{path} has a field of another form than asked for: {error}") from error


def _expected(fields: Mapping[str, Any]) -> Expected:
    first = fields["first"]
    return Expected(
        first=None if first is None else _word(first),
        allowed=frozenset(_words(fields["allowed"])),
        ruled_out=frozenset(_words(fields["ruled_out"])),
        measured_speedup={rule: _measured(value) for rule, value in fields["measured_speedup"].items()},
        half=Half(fields["half"]),
        evidence=tuple(_words(group) for group in _listed(fields.get("evidence", []))),
    )


def _measured(value: Mapping[str, Any]) -> MeasuredSpeedup:
    median, low, high = (None if value[name] is None else float(value[name]) for name in ("median", "low", "high"))
    if median is None or not all(factor > 0 for factor in (median, low, high) if factor is not None):
        raise ValueError("a speed-up is a factor over 0, its median is known")
    return MeasuredSpeedup(median, low, high)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def _words(value: Any) -> tuple[str, ...]:
    return tuple(_word(word) for word in _listed(value))


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is no name")
    return value
