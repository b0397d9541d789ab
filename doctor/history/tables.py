"""The tables of a history; the only place one is declared."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, ForeignKey, Integer, MetaData, Table, Text

LAYOUT_VERSION = 1

metadata = MetaData()

layout = Table(
    "doctor_layout",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False, comment="layout of these tables"),
    Column("doctor_version", Text, nullable=False, comment="version of doctor that made them"),
    comment="One row: what made the tables of Inference Doctor's history",
)

diagnosis = Table(
    "doctor_diagnosis",
    metadata,
    Column("diagnosis_id", Text, primary_key=True, comment="made by whoever diagnosed, unique everywhere"),
    Column("recorded_ms", BigInteger, nullable=False, comment="when, milliseconds since 1970, UTC"),
    Column("doctor_version", Text, nullable=False, comment="version of doctor that judged"),
    Column("is_complete", Boolean, nullable=False, comment="every file of the evidence was read whole"),
    Column("window_ns", BigInteger, comment="length of the window; NULL without a time-line"),
    Column("step_count", Integer, comment="engine steps in the window; NULL where they could not be told"),
    Column("worst_severity", Text, comment="info, low, medium, high, critical; NULL where nothing was found"),
    comment="Diagnoses",
)


def _of_diagnosis() -> Column[str]:
    return Column("diagnosis_id", ForeignKey(diagnosis.c.diagnosis_id), primary_key=True, comment="the diagnosis")


def _place(what: str) -> Column[int]:
    return Column("place", Integer, primary_key=True, autoincrement=False, comment=what)


evidence = Table(
    "doctor_evidence",
    metadata,
    _of_diagnosis(),
    _place("order in which it was read, from 0"),
    Column("name", Text, nullable=False, comment="base name of the file, never its folder"),
    Column("kind", Text, nullable=False, comment="evidence kind, such as nsys-report"),
    Column("tool", Text, comment="recorder and its version"),
    Column("sha256", Text, comment="hexadecimal digest of the file"),
    comment="Files that a diagnosis was made from",
)

figure = Table(
    "doctor_figure",
    metadata,
    _of_diagnosis(),
    Column("name", Text, primary_key=True, comment="gpu_busy, launches_per_step, step_seconds, ..."),
    Column("value", Double, nullable=False, comment="in the unit of the name; shares are 0 to 1"),
    comment="Vitals of a diagnosis; unknown ones have no row",
)

finding = Table(
    "doctor_finding",
    metadata,
    _of_diagnosis(),
    _place("0 is the principal finding"),
    Column("rule", Text, nullable=False, comment="id of the rule"),
    Column("severity", Text, nullable=False, comment="info, low, medium, high, critical"),
    Column("confidence", Double, nullable=False, comment="0 to 1"),
    Column("same_cause_as", Text, comment="rule whose finding carries the gain of this one"),
    Column("gain_seconds", Double, comment="removable time of the window"),
    Column("gain_bytes", BigInteger, comment="memory that the cure frees"),
    Column("speedup_bound", Double, comment="at most this factor"),
    Column("speedup_expected", Double, comment="expected factor; NULL where none is promised"),
    comment="Findings of a diagnosis",
)
