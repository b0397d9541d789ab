"""Runs `doctor diagnose` on a built trace and reads its JSON: a test of a rule covers all from bytes to words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.main import main
from tests.support.trace_builder import Program


@dataclass(frozen=True)
class Verdicts:
    """One diagnosis as its readers see it: the JSON document."""

    document: dict[str, Any]

    @property
    def first(self) -> str | None:
        """Id of the principal finding, None where nothing was found."""
        findings = self.document["findings"]
        return findings[0]["rule"] if findings else None

    @property
    def found(self) -> set[str]:
        """Ids of all findings."""
        return {finding["rule"] for finding in self.document["findings"]}

    @property
    def ruled_out(self) -> dict[str, str]:
        """What was cleared, by id, with its reason."""
        return {one["rule"]: one["because"] for one in self.document["ruled_out"]}

    @property
    def not_run(self) -> set[str]:
        """Ids of rules that lacked evidence."""
        return {one["rule"] for one in self.document["not_run"]}

    def finding(self, rule: str) -> dict[str, Any]:
        """The finding of a rule; fails the test where there is none."""
        found = [finding for finding in self.document["findings"] if finding["rule"] == rule]
        assert found, f"{rule} is not among {self.found or 'no findings'}"
        return dict(found[0])

    def evidence(self, rule: str, name: str) -> float:
        """One number of a finding's evidence."""
        [value] = [one["value"] for one in self.finding(rule)["evidence"] if one["name"] == name]
        return float(value)


def verdicts_on(path: Path, capfd: pytest.CaptureFixture[str]) -> Verdicts:
    """What `doctor diagnose PATH --format json` says."""
    return verdicts_on_all([path], capfd)


def verdicts_on_all(paths: Sequence[Path], capfd: pytest.CaptureFixture[str]) -> Verdicts:
    """What `doctor diagnose PATH... --format json` says."""
    code = main(["diagnose", *map(str, paths), "--format", "json", "--no-progress"])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    return Verdicts(json.loads(printed.out))


@dataclass(frozen=True)
class Clinic:
    """Writes programs as traces into a folder and diagnoses them."""

    folder: Path
    capfd: pytest.CaptureFixture[str]

    def verdicts(self, *programs: Program) -> Verdicts:
        """The diagnosis of one program, or of the ranks of one job."""
        target = self.folder / "ranks" if len(programs) > 1 else self.folder
        target.mkdir(exist_ok=True)
        paths = [program.write(target / f"rank{place}.json") for place, program in enumerate(programs)]
        return verdicts_on(target if len(programs) > 1 else paths[0], self.capfd)

    def told(self, *pieces: str | bytes | Path) -> Verdicts:
        """The diagnosis of evidence of any kind: each text or content becomes a file, a path is taken as it is."""
        paths = []
        for place, piece in enumerate(pieces):
            path = piece if isinstance(piece, Path) else self.folder / f"evidence{place}"
            if isinstance(piece, str | bytes):
                path.write_bytes(piece.encode() if isinstance(piece, str) else piece)
            paths.append(path)
        return verdicts_on_all(paths, self.capfd)
