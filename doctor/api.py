"""The library's face: evidence in, case or diagnosis out. Joins readers and diagnosis; no other module does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import duckdb

from doctor.case.batch import SourceFacts, TableBatch
from doctor.case.connection import connect
from doctor.case.derive import WindowChoice, is_derived
from doctor.case.load import CaseLoader
from doctor.case.runs.leaving import leave_out_other_runs
from doctor.case.schema import Columns
from doctor.case.store import (
    copy_to_working_case,
    create_case,
    create_working_case,
    is_case_file,
    limit_memory,
    naming_case_trouble,
    open_case,
)
from doctor.diagnosis.catalogue import load_catalogue, unread_by
from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.outcome import Diagnosis
from doctor.diagnosis.runner import diagnose_case
from doctor.discovery import EvidencePath, discovered, refuse_where_all_failed
from doctor.errors import CaseError, EvidenceError, UsageError
from doctor.readers import registry
from doctor.readers.protocol import Progress, no_progress

__all__ = ["diagnose", "load", "load_evidence", "open_case", "saved_as"]

ProgressOfFile = Callable[[str], Progress]
"""Gives the progress callback for one file, by the name the user gave it."""


def diagnose(
    *paths: str | os.PathLike[str], options: DiagnosisOptions | None = None, rules: Path | None = None
) -> Diagnosis:
    """Read evidence and diagnose it.

    Args:
        paths: files, folders or patterns, in any mix of formats; told by content.
        options: the window to look at and the rules to run.
        rules: folder with rules of your own, beside those of the package.

    Raises:
        DoctorError: evidence, options or rules are unusable; the message says what to do.
    """
    catalogue = load_catalogue(rules)
    chosen = options or DiagnosisOptions()
    with discovered(os.fspath(path) for path in paths) as found:
        window = WindowChoice(chosen.window, chosen.range_name)
        case = load_evidence(found.evidence, window=window, left_out=unread_by(catalogue))
    with contextlib.closing(case):
        return diagnose_case(case, catalogue, chosen)


def load(*paths: str | os.PathLike[str], save: str | os.PathLike[str] | None = None) -> duckdb.DuckDBPyConnection:
    """Read evidence into a case: a DuckDB connection with the tables of `doctor.case.schema`.

    Args:
        paths: files, folders or patterns, in any mix of formats; told by content.
        save: file to keep the case in; in memory where None.

    Raises:
        DoctorError: evidence is unusable, or the file exists already.
    """
    with discovered(os.fspath(path) for path in paths) as found:
        return load_evidence(found.evidence, Path(save) if save is not None else None)


def load_evidence(
    evidence: Iterable[EvidencePath],
    save: Path | None = None,
    reader: str = "native",
    progress: ProgressOfFile = lambda name: no_progress,
    window: WindowChoice | None = None,
    left_out: Columns | None = None,
) -> duckdb.DuckDBPyConnection:
    """Read discovered evidence into a case; a file to save appears only once all of it was read.

    What cannot be read is named in the table `unread_file`, as long as something else can.

    A saved case is opened as it is: read-only where it was derived by these views with this choice of `window`,
    otherwise as a working copy.

    Args:
        evidence: what to read.
        save: file to keep the case in.
        reader: who reads reports, see `doctor.readers.registry.read`.
        progress: gives a callback for each file.
        window: the choice that a saved case should be derived with.
        left_out: columns that nobody will ask for; a case that is saved, or was, has all.

    Raises:
        DoctorError: evidence is unusable, or the file to save exists already.
    """
    entries = tuple(evidence)
    if any(is_case_file(entry.path) for entry in entries):
        with naming_case_trouble():
            return _open_saved(entries, save, window)
    size = sum(_bytes_of(entry.path) for entry in entries if entry.fault is None)
    if save is None:
        with naming_case_trouble():
            return _fill(create_working_case(size, left_out), entries, reader, progress, left_out)
    try:
        with saved_as(save) as partial:
            case = create_case(partial)
            limit_memory(case, size)
            with contextlib.closing(_fill(case, entries, reader, progress)):
                case.execute("CHECKPOINT")  # closing would do it too, and say nothing of a full disk
    except (duckdb.Error, OSError) as error:
        raise CaseError(f"cannot write {save}: {str(error).splitlines()[0]}") from error
    case = connect(save)
    limit_memory(case, size)
    return case


@contextlib.contextmanager
def saved_as(save: Path) -> Iterator[Path]:
    """Give a path beside `save` to write a case to: it gets that name once it is whole, and goes where it fails.

    Raises:
        CaseError: the name is taken, or was taken meanwhile.
    """
    if save.exists():
        raise CaseError(f"{save} exists already: name another file or remove it first")
    partial = save.with_name(f".{save.name}.{os.getpid()}.partial")
    try:
        yield partial
        _give_name(partial, save)
    except CaseError as error:
        raise CaseError(str(error).replace(partial.name, save.name)) from error
    finally:
        partial.unlink(missing_ok=True)
        partial.with_name(f"{partial.name}.wal").unlink(missing_ok=True)


def _give_name(partial: Path, save: Path) -> None:
    """Give a finished case its name, unless another process was faster: that one's case is no less wanted.

    Raises:
        CaseError: the name is taken.
    """
    try:
        os.link(partial, save)
    except FileExistsError:
        raise CaseError(f"{save} exists already: another process has saved it meanwhile") from None
    except OSError:  # a disk that knows no second names
        partial.rename(save)


def _open_saved(
    entries: tuple[EvidencePath, ...], save: Path | None, window: WindowChoice | None
) -> duckdb.DuckDBPyConnection:
    if len(entries) > 1:
        raise UsageError("a saved case is diagnosed alone: give the evidence itself to diagnose it with more")
    if save is not None:
        raise UsageError(f"{entries[0].shown} is a saved case already: copy the file instead of saving it again")
    case = open_case(entries[0].path)
    if is_derived(case, window):
        return case
    case.close()
    return copy_to_working_case(entries[0].path)


def _bytes_of(path: Path) -> int:
    files = (path,) if not path.is_dir() else tuple(path.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())


def _fill(
    case: duckdb.DuckDBPyConnection,
    evidence: Iterable[EvidencePath],
    reader: str,
    progress: ProgressOfFile,
    left_out: Columns | None = None,
) -> duckdb.DuckDBPyConnection:
    def rows_of(entry: EvidencePath) -> Iterator[TableBatch | SourceFacts]:
        return registry.read(entry.path, reader, progress(entry.shown), left_out)

    try:
        loader = CaseLoader(case, left_out)
        refuse_where_all_failed([_load(loader, entry, rows_of) for entry in evidence])
        leave_out_other_runs(case)
    except BaseException:
        case.close()
        raise
    return case


def _load(
    loader: CaseLoader, entry: EvidencePath, rows_of: Callable[[EvidencePath], Iterator[TableBatch | SourceFacts]]
) -> EvidenceError | None:
    """Read one file into the case, or say in it why not and give the reason."""
    try:
        if entry.fault is not None:
            raise entry.fault
        loader.load(entry.shown, rows_of(entry))
    except EvidenceError as error:
        loader.leave_out(entry.shown, registry.kind_of(entry.path), error.about(entry.path))
        return error
    return None
