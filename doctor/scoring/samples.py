"""Finds samples, and which of their files are diagnosed together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from doctor.errors import EvidenceError, UnknownEvidenceError, UsageError
from doctor.readers import registry
from doctor.scoring.expected import FILE_NAME, Expected, read_expected

RECORDING_KINDS = frozenset({"nsys-report", "nsys-sqlite", "nsys-columnar", "kineto"})
"""Each of these is a whole run: a report, its export and a trace of the same program are three recordings of it."""
_BESIDE_THE_EVIDENCE = (".md", ".py")


@dataclass(frozen=True)
class Sample:
    """A folder with evidence and what is expected of it.

    Attributes:
        name: of the folder, under the one that was searched.
        folder: where it lies.
        expected: what is known.
        groups: files that are diagnosed together.
    """

    name: str
    folder: Path
    expected: Expected
    groups: tuple[tuple[Path, ...], ...]


def find_samples(root: Path) -> tuple[Sample, ...]:
    """Every folder at or below `root` that holds an `expected.json`, by name.

    Raises:
        UsageError: there is none, one is wrong, or a sample holds no evidence.
    """
    if not root.is_dir():
        raise UsageError(f"there is no folder {root}")
    found = tuple(_sample(root, path) for path in sorted(_expectations(root)))
    if not found:
        raise UsageError(f"no folder under {root} holds an {FILE_NAME}")
    return found


def _expectations(root: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if FILE_NAME in files:
            yield Path(place, FILE_NAME)


def _sample(root: Path, path: Path) -> Sample:
    folder, expected = path.parent, read_expected(path)
    name = folder.relative_to(root).as_posix() if folder != root else root.resolve().name
    groups = tuple(_named_groups(folder, expected)) or tuple(_groups_by_kind(_files(folder)))
    if not groups:
        raise UsageError(f"{folder} holds an {FILE_NAME} and no evidence beside it")
    return Sample(name, folder, expected, groups)


def _named_groups(folder: Path, expected: Expected) -> Iterator[tuple[Path, ...]]:
    for names in expected.evidence:
        paths = tuple(folder / name for name in names)
        missing = [path for path in paths if not path.exists()]
        if missing or not paths:
            raise UsageError(f"{folder / FILE_NAME} names evidence that is not there: {', '.join(names)}")
        yield paths


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        is_evidence = path.name != FILE_NAME and not path.name.startswith((".", "_"))
        if is_evidence and not path.name.endswith(_BESIDE_THE_EVIDENCE):
            yield path


def _groups_by_kind(paths: Iterable[Path]) -> Iterator[tuple[Path, ...]]:
    """Each recording alone, everything else together; what no reader knows is no evidence, what is broken is."""
    together: list[Path] = []
    for path in paths:
        try:
            kind = registry.reader_for(path).kind
        except UnknownEvidenceError:
            continue
        except EvidenceError:
            kind = None
        if kind is None or kind in RECORDING_KINDS:
            yield (path,)
        else:
            together.append(path)
    if together:
        yield tuple(together)
