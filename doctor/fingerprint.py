"""SHA-256 of evidence, so that a report or a history says which bytes it speaks of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from doctor.diagnosis.outcome import Diagnosis
from doctor.discovery import EvidencePath
from doctor.errors import EvidenceError


def with_fingerprints(diagnosis: Diagnosis, evidence: Iterable[EvidencePath]) -> Diagnosis:
    """The diagnosis with the digest of each file that it was made from.

    Raises:
        EvidenceError: a file can no longer be read.
    """
    digests = {entry.shown: sha256_of(entry.path) for entry in evidence if entry.fault is None}
    files = tuple(replace(file, sha256=digests.get(file.path)) for file in diagnosis.evidence)
    return replace(diagnosis, evidence=files)


def sha256_of(path: Path) -> str:
    """Hexadecimal digest of a file as it lies on disk; of a folder, that of its files' names and digests, by name.

    Raises:
        EvidenceError: it cannot be read.
    """
    try:
        if not path.is_dir():
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        names = sorted(entry for entry in path.rglob("*") if entry.is_file())
        lines = (f"{sha256_of(entry)}  {entry.relative_to(path).as_posix()}\n" for entry in names)
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    except OSError as error:
        raise EvidenceError(f"{path} cannot be read again for its digest: {error.strerror or error}") from error
