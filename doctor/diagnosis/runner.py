"""Runs the rules over one case: evidence to verdicts, verdicts to a ranked diagnosis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import duckdb

from doctor.case import diagnosis_queries as queries
from doctor.case.derive import WindowChoice, derive
from doctor.case.framework_queries import frameworks
from doctor.case.program_queries import program
from doctor.case.store import naming_case_trouble
from doctor.case.tasks import Task
from doctor.diagnosis.fix_order import fitting, ordered
from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.outcome import (
    Diagnosis,
    Display,
    EvidenceFile,
    KernelRow,
    NotRun,
    Program,
    RankedFinding,
    ReplayQuality,
    RuledOut,
    TimelineBin,
    Window,
)
from doctor.diagnosis.program import described
from doctor.diagnosis.ranking import Suspect, rank
from doctor.diagnosis.tracks import ZoomableTimeline
from doctor.diagnosis.zoom import zoomable_timeline
from doctor.errors import CaseError, CatalogueError, UsageError
from doctor.replay.win import READ_BY_REPLAY, Replay
from doctor.rule import Cleared, Finding, ProgramKind, Rule, Severity, Sign
from doctor.units import format_ns


@dataclass(frozen=True)
class _Judged:
    """What the rules said, before anything is ranked."""

    suspects: tuple[tuple[Rule, Finding], ...]
    cleared: tuple[RuledOut, ...]
    not_run: tuple[NotRun, ...]
    checked_count: int


@naming_case_trouble()
def diagnose_case(
    connection: duckdb.DuckDBPyConnection, rules: tuple[Rule, ...], options: DiagnosisOptions
) -> Diagnosis:
    """Diagnose a loaded case.

    Args:
        connection: a case that may be written: derived tables are created in it.
        rules: the catalogue.
        options: window and choice of rules.

    Raises:
        UsageError: a rule of `select` or `ignore` does not exist, or the window asked for is empty.
        CatalogueError: a rule's SELECT is wrong.
        CaseError: there is no room for derived tables, or the case is damaged.
    """
    judged, replay = _derived(connection, _chosen(rules, options), options)
    window = queries.window(connection)
    vitals = _vitals(connection, window)
    if replay is not None and (reasons := _reasons_for_distrust(connection, vitals)):
        replay.quality = replace(replay.quality, is_trusted=False, notes=(*replay.quality.notes, *reasons))
        judged = replace(judged, suspects=tuple((rule, _doubted(finding)) for rule, finding in judged.suspects))
    with ThreadPoolExecutor(1, "doctor-draws") as beside:
        drawing = beside.submit(_display, connection.cursor(), window)
        naming = beside.submit(_frameworks, connection.cursor(), options)
        ranked = rank(_suspects(judged, replay), replay)
    display, wanted = drawing.result(), naming.result()
    recorded = described(program(connection), wanted)
    findings = tuple(_advised(finding, recorded, wanted) for finding in ranked.findings)
    return Diagnosis(
        evidence=_evidence(connection),
        window=None
        if window is None
        else Window(window.start_ns, window.end_ns, window.step_count or None, window.chosen_by),
        vitals=vitals,
        findings=findings,
        ruled_out=(*ranked.ruled_out, *judged.cleared),
        not_run=judged.not_run,
        replay=None if replay is None else _quality(replay),
        checked_count=judged.checked_count,
        frameworks=wanted,
        program=recorded,
        display=display
        if window is None or not options.is_zoomable
        else replace(display, zoom=_zoomable(connection, window, findings)),
    )


def _suspects(judged: _Judged, replay: Replay | None) -> list[Suspect]:
    """What is to be ranked; a cure that cannot be replayed is no suspicion."""
    suspects = [Suspect(rule, finding, None) for rule, finding in judged.suspects if finding.cure is None]
    if replay is None:
        return suspects
    curable = [(rule, finding, finding.cure) for rule, finding in judged.suspects if finding.cure is not None]
    wins = replay.wins([cure for _, _, cure in curable])
    return suspects + [Suspect(rule, finding, win) for (rule, finding, _), win in zip(curable, wins, strict=True)]


def _advised(finding: RankedFinding, recorded: Program | None, wanted: tuple[str, ...]) -> RankedFinding:
    """The finding with the fixes that are for such a program, in the order of this user."""
    kind = ProgramKind.UNKNOWN if recorded is None else recorded.kind
    return replace(finding, fixes=ordered(fitting(finding.fixes, kind, wanted), wanted))


def _frameworks(connection: duckdb.DuckDBPyConnection, options: DiagnosisOptions) -> tuple[str, ...]:
    """The framework that the user asked for, then those that the evidence names."""
    named = frameworks(connection)
    return named if options.framework is None else tuple(dict.fromkeys((options.framework, *named)))


def _derived(
    connection: duckdb.DuckDBPyConnection, rules: tuple[Rule, ...], options: DiagnosisOptions
) -> tuple[_Judged, Replay | None]:
    """Derive the case and judge it; the replay is built beside that as soon as there is what it reads.

    The one is DuckDB's work, the other numpy's: beside each other they fill two cores. Rules judge in this thread: a
    signal has to reach one that does not end.
    """
    building: list[Future[Replay | None]] = []
    with ThreadPoolExecutor(1, "doctor-replays") as beside:

        def begin(cursor: duckdb.DuckDBPyConnection) -> None:
            building.append(beside.submit(_built, cursor.cursor(), options))

        derive(
            connection, WindowChoice(options.window, options.range_name), (Task(READ_BY_REPLAY, frozenset(), begin),)
        )
        return _judge_all(connection, rules), building[0].result()


def _built(connection: duckdb.DuckDBPyConnection, options: DiagnosisOptions) -> Replay | None:
    window = queries.window(connection)
    if window is None:
        return None
    return Replay(connection, window.start_ns, window.end_ns, options.unprofiled_seconds)


def _reasons_for_distrust(connection: duckdb.DuckDBPyConnection, vitals: Mapping[str, float | None]) -> tuple[str, ...]:
    """What makes a replay worthless however well it fits."""
    reasons: list[str] = []
    if any(not source.is_complete and not source.is_passed_over for source in queries.sources(connection)):
        reasons.append("part of the recording could not be read, and what is missing looks like silence")
    if vitals["gpu_busy"] == 0:
        reasons.append("no device work in the window takes any time")
    return tuple(reasons)


def _doubted(finding: Finding) -> Finding:
    """A cure judged on half a recording is not grave."""
    return (
        finding if finding.cure is None else replace(finding, max_severity=min(finding.max_severity, Severity.MEDIUM))
    )


def _chosen(rules: tuple[Rule, ...], options: DiagnosisOptions) -> tuple[Rule, ...]:
    known = {rule.about.id for rule in rules}
    unknown = [name for name in (*options.select, *options.ignore) if name not in known]
    if unknown:
        raise UsageError(f"no rule is called {', '.join(unknown)}: see `doctor rules`")
    return tuple(
        rule
        for rule in rules
        if rule.about.id not in options.ignore and (not options.select or rule.about.id in options.select)
    )


def _judge_all(connection: duckdb.DuckDBPyConnection, rules: Iterable[Rule]) -> _Judged:
    suspects: list[tuple[Rule, Finding]] = []
    cleared: list[RuledOut] = []
    not_run: list[NotRun] = []
    checked_count = 0
    read = {table for rule in rules for sign in rule.signs for table in sign.reads}
    filled = {table for table in read if queries.rows_in(connection, table)}
    for rule in rules:
        visible = [sign for sign in rule.signs if filled.issuperset(sign.reads)]
        if not visible:
            not_run.append(NotRun(rule.about.id, rule.needs))
            continue
        checked_count += any(set(sign.reads) != {"source"} for sign in visible)
        verdicts = [verdict for sign in visible for verdict in _verdicts(connection, rule, sign)]
        findings = _without_repeats([verdict for verdict in verdicts if isinstance(verdict, Finding)], len(visible))
        suspects += [(rule, finding) for finding in findings]
        if not findings:  # what one sign clears and another shows is there
            cleared += [
                RuledOut(rule.about.id, verdict.because) for verdict in verdicts if not isinstance(verdict, Finding)
            ]
    return _Judged(tuple(suspects), tuple(cleared), tuple(not_run), checked_count)


def signs_that_show(connection: duckdb.DuckDBPyConnection, rule: Rule) -> tuple[Sign, ...]:
    """The signs of a rule that find its problem in a diagnosed case.

    Raises:
        CatalogueError: the rule's SELECT is wrong.
        CaseError: the case is damaged.
    """
    visible = _visible(connection, rule)
    return tuple(sign for sign in visible if any(isinstance(one, Finding) for one in _verdicts(connection, rule, sign)))


def _visible(connection: duckdb.DuckDBPyConnection, rule: Rule) -> list[Sign]:
    return [sign for sign in rule.signs if all(queries.rows_in(connection, table) for table in sign.reads)]


def _without_repeats(findings: list[Finding], sign_count: int) -> list[Finding]:
    """One problem seen by several signs is one finding: one whose cure can be replayed speaks, the others witness."""
    if sign_count == 1 or len(findings) < 2:
        return findings
    replayed = [finding for finding in findings if finding.cure is not None]
    speaker = (
        replayed[0] if replayed else max(findings, key=lambda one: (one.severity or Severity.INFO, one.confidence))
    )
    others = [finding for finding in findings if finding is not speaker]
    told = {(entry.name, entry.value, entry.unit) for entry in speaker.evidence}
    witnesses = (entry for finding in others for entry in finding.evidence)
    evidence = (entry for entry in witnesses if (entry.name, entry.value, entry.unit) not in told)
    fixes = (fix for finding in others for fix in finding.fixes if speaker.fixes)  # another cause asks for its own
    return [
        replace(speaker, evidence=(*speaker.evidence, *evidence), fixes=tuple(dict.fromkeys((*speaker.fixes, *fixes))))
    ]


def _verdicts(connection: duckdb.DuckDBPyConnection, rule: Rule, sign: Sign) -> list[Finding | Cleared]:
    values = {
        name: threshold.value for name, threshold in rule.thresholds.items() if re.search(rf"\${name}\b", sign.sql)
    }
    try:
        with naming_case_trouble():
            rows = queries.select(connection, sign.sql, values)
        verdicts = [sign.judge(sign.row(*row)) for row in rows]
    except CaseError:
        raise
    except Exception as error:  # a user's rule may fail in any way
        first = (str(error).splitlines() or [""])[0]
        raise CatalogueError(f"the rule {rule.about.id} is wrong: {type(error).__name__}: {first}") from error
    return [verdict for verdict in verdicts if verdict is not None]


def _evidence(connection: duckdb.DuckDBPyConnection) -> tuple[EvidenceFile, ...]:
    read = tuple(
        EvidenceFile(source.path, source.kind, source.tool, source.is_complete, source.notes + _remarks(source))
        for source in queries.sources(connection)
    )
    unread = tuple(
        EvidenceFile(file.path, file.kind or "unknown", None, False, (f"not read: {file.reason}",), is_read=False)
        for file in queries.unread_files(connection)
    )
    others = tuple(
        EvidenceFile(
            file.path,
            file.kind,
            file.tool,
            file.is_complete,
            (f"not diagnosed, since it is of another run: {file.reason}",),
            run=file.run_id,
            run_reason=file.reason,
        )
        for file in queries.other_runs(connection)
    )
    return read + unread + others


def _remarks(source: queries.SourceRow) -> tuple[str, ...]:
    """What the diagnosis made of a file.

    A report and its own export would count twice, and two runs in one folder are two cases.
    """
    if source.is_passed_over:
        return ("read, but not diagnosed: another recording holds as much device work, or more",)
    if source.clock_ahead_ns is None:
        return ()
    where = "ahead of" if source.clock_ahead_ns > 0 else "behind"
    return (f"its clock is {format_ns(abs(source.clock_ahead_ns))} {where} the first rank's: corrected on collectives",)


def _vitals(connection: duckdb.DuckDBPyConnection, window: queries.WindowRow | None) -> dict[str, float | None]:
    if window is None:
        return {}
    row = queries.vitals(connection)
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _quality(replay: Replay) -> ReplayQuality:
    quality = replay.quality
    return ReplayQuality(
        quality.is_trusted,
        quality.identity_error,
        quality.class_median_error,
        quality.host_speed_factor,
        quality.profiler_share,
        quality.correction,
        quality.notes,
    )


def _display(connection: duckdb.DuckDBPyConnection, window: queries.WindowRow | None) -> Display:
    if window is None:
        return Display()
    kernels = queries.top_kernels(connection)
    busy_ns = queries.kernel_time(connection)
    return Display(
        timeline=tuple(
            TimelineBin(cell.start_ns, cell.compute_share, cell.communication_share, cell.copy_share)
            for cell in queries.timeline(connection)
        ),
        kernels=tuple(
            KernelRow(
                row.name, row.family, row.count, row.total_ns, round(row.median_ns), row.total_ns / max(busy_ns, 1)
            )
            for row in kernels
        ),
    )


def _zoomable(
    connection: duckdb.DuckDBPyConnection, window: queries.WindowRow, findings: tuple[RankedFinding, ...]
) -> ZoomableTimeline:
    evidence = (entry for finding in findings for entry in finding.evidence)
    return zoomable_timeline(connection, evidence, window.start_ns, window.end_ns)
