from __future__ import annotations

import json
from typing import Any

from doctor.diagnosis.outcome import Diagnosis
from doctor.reports.presentation import Presentation, render
from tests.support import diagnoses


def parsed(diagnosis: Diagnosis) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render(diagnosis, "json", Presentation()), parse_constant=_refuse)
    return document


def _refuse(word: str) -> float:
    raise AssertionError(f"{word} is not JSON")


def test_the_document_has_the_fields_of_the_contract() -> None:
    document = parsed(diagnoses.launch_bound())
    assert document["schema"] == "doctor.diagnosis/1"
    assert {"evidence", "window", "vitals", "findings", "ruled_out", "not_run"} <= document.keys()
    assert document["evidence"] == [
        {
            "path": "traces/launch-sick.nsys-rep",
            "kind": "nsys-report",
            "tool": "nsys 2025.3.1",
            "complete": True,
            "read": True,
            "run": 1,
            "notes": [],
        }
    ]
    assert document["window"] == {
        "start_ns": 0,
        "end_ns": 239_300_000,
        "seconds": 0.2393,
        "steps": 8,
        "chosen_by": "nvtx:decode_step",
    }
    assert document["vitals"]["gpu_busy"] == 0.155
    assert document["ruled_out"][0] == {
        "rule": "sync-in-step",
        "because": "136 syncs, but the GPU was idle after them for 0.4 % of the window",
    }
    first = document["not_run"][0]
    assert (first["rule"], first["needs"]) == ("foreign-gpu-process", ["nvml", "oom-text"])
    assert [one["command"] for one in first["collect"]] == [
        "doctor vitals --watch --format json > vitals.jsonl",
        "COMMAND 2>&1 | tee serve.log",
    ]


def test_a_finding_has_the_fields_of_the_contract() -> None:
    finding = parsed(diagnoses.launch_bound())["findings"][0]
    assert finding["rule"] == "host-dispatch-bound"
    assert finding["severity"] == "critical"
    assert finding["confidence"] == 0.9
    assert {key: finding["gain"][key] for key in ("seconds", "speedup_bound", "speedup_expected", "bytes")} == {
        "seconds": 0.19,
        "speedup_bound": 4.9,
        "speedup_expected": 4.1,
        "bytes": None,
    }
    assert finding["evidence"][0]["name"] == "queue-empty gaps"
    assert finding["evidence"][0]["value"] == 0.81
    assert finding["evidence"][0]["unit"] == "share of window"
    where = finding["evidence"][0]["where"]
    assert (where["range"], where["start_ns"], where["end_ns"], where["stream"]) == (
        "decode_step",
        120_000,
        29_900_000,
        7,
    )
    assert finding["fixes"][1]["target"] == "vllm"
    assert finding["fixes"][1]["setting"] == "drop --enforce-eager"
    assert finding["verify"].startswith("Record again")
    assert finding["doc"] == "doctor explain host-dispatch-bound"


def test_a_finding_of_the_same_cause_names_its_principal_and_has_no_gain() -> None:
    follower = parsed(diagnoses.launch_bound())["findings"][1]
    assert follower["same_cause_as"] == "host-dispatch-bound"
    assert follower["gain"] is None


def test_evidence_without_a_time_line_has_no_window() -> None:
    assert parsed(diagnoses.foreign_process())["window"] is None


def test_numbers_that_json_lacks_become_null() -> None:
    document = parsed(diagnoses.hostile())
    assert document["vitals"]["gpu_busy"] is None
    assert document["findings"][0]["gain"]["speedup_bound"] is None


def test_the_document_survives_any_encoding() -> None:
    assert render(diagnoses.hostile(), "json", Presentation()).isascii()
