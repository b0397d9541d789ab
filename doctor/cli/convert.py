"""`doctor convert`: a report to NVIDIA's own SQLite or Parquet layout, or any time-line to a trace of Perfetto."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from doctor.cli.exit_codes import ExitCode
from doctor.cli.output import check_writable, say
from doctor.cli.progress import ProgressBars
from doctor.errors import EvidenceError, UsageError

if TYPE_CHECKING:
    from doctor.diagnosis.outcome import Diagnosis

_PERFETTO_SUFFIXES = (".pftrace", ".perfetto-trace")


@click.command("convert", short_help="Write evidence as NVIDIA's SQLite or Parquet export, or as a Perfetto trace.")
@click.argument("evidence", type=click.Path(path_type=Path), metavar="EVIDENCE")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="A new file OUT.sqlite or OUT.pftrace, or a new folder OUT.parquet/.",
)
@click.option("--no-progress", is_flag=True, help="No progress bars.")
@click.option("--strict", is_flag=True, help="Exit with 3 where part of the evidence could not be read.")
def command(evidence: Path, output: Path, no_progress: bool, strict: bool) -> int:
    """Write EVIDENCE in another format, without NVIDIA's tools. The ending of OUT decides.

    .sqlite, .sqlite3 and .db make an SQLite file in the layout of NVIDIA's export, .parquet a folder with one file a
    table; EVIDENCE is then a .nsys-rep or .qdrep, also packed as .gz or .zst.

    .pftrace makes a trace for ui.perfetto.dev, with the findings on tracks of their own; EVIDENCE is then anything with
    a time-line that `doctor diagnose` reads, a case kept with --save too.

    The environment, command lines, host and user names in the evidence are not written.
    """
    if output.suffix in _PERFETTO_SUFFIXES:
        is_complete = _to_perfetto(evidence, output, has_progress=not no_progress)
    else:
        is_complete = _to_nvidias_layout(evidence, output, has_progress=not no_progress)
    return ExitCode.INCOMPLETE if strict and not is_complete else ExitCode.DONE


def _to_nvidias_layout(report: Path, output: Path, *, has_progress: bool) -> bool:
    from doctor.convert.conversion import convert_report
    from doctor.readers.evidence_file import open_evidence

    file = open_evidence(report)
    with ProgressBars(is_wanted=has_progress) as bars, file.unpacked() as plain:
        try:
            done = convert_report(plain, output, bars.file(report.name))
        except EvidenceError as error:  # the user never saw the name of the unpacked copy
            raise error.with_name(plain, report) from error
    is_complete = done.is_complete and file.cut_short is None
    _say_notes(report, (*filter(None, (file.cut_short,)), *done.notes))
    incomplete = "" if is_complete else "; the report is incomplete"
    say(f"{output}: {done.num_rows:,} rows in {done.num_tables} tables{incomplete}")
    return is_complete


def _say_notes(evidence: Path | str, notes: tuple[str, ...]) -> None:
    """One line of what a recording lost or what it lacks."""
    if notes:
        say(f"{evidence}: {'; '.join(notes)}")


def _to_perfetto(evidence: Path, output: Path, *, has_progress: bool) -> bool:
    from doctor.api import load_evidence
    from doctor.convert.perfetto.case_trace import write_trace
    from doctor.diagnosis.catalogue import load_catalogue
    from doctor.diagnosis.options import DiagnosisOptions
    from doctor.diagnosis.runner import diagnose_case
    from doctor.discovery import discovered
    from doctor.reports.finding_tracks import finding_tracks

    check_writable(output)
    if output.exists():
        raise UsageError(f"{output} exists already: name another file or remove it first")
    with (
        ProgressBars(is_wanted=has_progress) as bars,
        discovered([str(evidence)]) as found,
        closing(load_evidence(found.evidence, progress=bars.file)) as case,
    ):
        with bars.stage("diagnosing"):
            diagnosis = diagnose_case(case, load_catalogue(), DiagnosisOptions())
        _refuse_without_time_line(diagnosis, evidence)
        with bars.stage("writing"):
            done = write_trace(case, finding_tracks(diagnosis), output)
    for file in diagnosis.evidence:
        if not file.is_complete:
            _say_notes(file.path, file.notes)
    incomplete = "" if diagnosis.is_complete else "; the evidence is incomplete"
    say(
        f"{output}: {done.num_slices:,} slices, {done.num_values:,} values of counters, "
        f"{done.num_findings} findings{incomplete}; open it at https://ui.perfetto.dev"
    )
    return diagnosis.is_complete


def _refuse_without_time_line(diagnosis: Diagnosis, evidence: Path) -> None:
    if diagnosis.window is None:
        raise UsageError(f"{evidence} holds no time-line of device work: there is nothing that Perfetto could show")
