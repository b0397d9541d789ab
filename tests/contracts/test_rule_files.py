"""What every rule file promises to those who read `doctor explain`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doctor.case.store import create_case
from doctor.diagnosis.catalogue import load_catalogue
from doctor.reports.manual import sections
from doctor.rule import Rule

ROOT = Path(__file__).parents[2]
CATALOGUE = load_catalogue(None)
KINDS = {
    "nsys-report", "nsys-sqlite", "nsys-columnar", "kineto", "nvml", "nvidia-smi", "oom-text", "memory-snapshot",
    "engine-log", "engine-config", "nccl-log", "kernel-log", "cgroup", "topology", "bench-table", "metrics",
}  # fmt: skip
TARGETS = {"pytorch", "vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi", "transformers", "engine", "system"}

every_rule = pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.about.id) for rule in CATALOGUE])


def test_every_rule_file_is_in_the_catalogue_under_its_own_name() -> None:
    files = {path.stem.replace("_", "-") for path in (ROOT / "rules").glob("*/*.py") if path.stem != "__init__"}
    assert {rule.about.id for rule in CATALOGUE} == files
    assert len({rule.about.id for rule in CATALOGUE}) == len(CATALOGUE)


@every_rule
def test_the_manual_page_has_its_sections(rule: Rule) -> None:
    heads = [head for head, _ in sections(rule.doc)]
    assert heads == ["", "What happens", "How it is detected", "When it is not this"]
    assert all(body for _, body in sections(rule.doc))


@every_rule
def test_thresholds_and_fixes_say_where_they_come_from(rule: Rule) -> None:
    assert all(threshold.source and threshold.unit for threshold in rule.thresholds.values())
    assert all(fix.source and fix.setting and fix.why for fix in rule.fixes)
    assert rule.verify


@every_rule
def test_fixes_are_for_known_frameworks(rule: Rule) -> None:
    assert {fix.target for fix in rule.fixes} <= TARGETS


@every_rule
def test_the_evidence_it_needs_are_kinds_of_the_contract(rule: Rule) -> None:
    assert rule.about.needs
    assert set(rule.about.needs) <= KINDS


@every_rule
def test_the_tables_it_reads_exist(rule: Rule) -> None:
    assert rule.about.reads
    known = {name for (name,) in create_case().execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    for view in (ROOT / "doctor/case/views").glob("*.sql"):
        known.update(re.findall(r"CREATE (?:TABLE|VIEW) (\w+)", view.read_text("utf-8")))
    assert set(rule.about.reads) <= known


@every_rule
def test_the_title_is_a_few_words(rule: Rule) -> None:
    assert 3 <= len(rule.about.title) <= 70
    assert not rule.about.title.endswith(".")


def test_a_group_has_one_principal() -> None:
    groups: dict[str, list[int]] = {}
    for rule in CATALOGUE:
        if rule.about.group:
            groups.setdefault(rule.about.group, []).append(rule.about.group_rank)
    for ranks in groups.values():
        assert sorted(ranks) == list(range(len(ranks)))
