"""Evidence that cannot be read, beside evidence that can: the diagnosis is that of the rest, and says so."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.main import main
from doctor.diagnosis.options import DiagnosisOptions
from doctor.tui.loading.events import Diagnosed, LoadFailed, LoadRequest
from doctor.tui.loading.process import LoadingProcess

COMMAND = "vllm serve meta-llama/Llama-3.1-8B --enforce-eager --max-model-len 8192\n"
KERNEL = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {"device": 0}}'
CUT_GZIP = gzip.compress(b"some text that is long enough" * 100)[:12]
CUT_SQLITE = b"SQLite format 3\x00" + bytes(200) + b"CUPTI_ACTIVITY_KIND_KERNEL StringIds TARGET_INFO_GPU"

Output = pytest.CaptureFixture[str]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.log"
    path.write_text(COMMAND, "utf-8")
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "rank1.json.gz"
    path.write_bytes(CUT_GZIP)
    return path


def run(capsys: Output, *arguments: str | Path) -> tuple[int, str, list[str]]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err.splitlines()


def diagnosed(capsys: Output, *arguments: str | Path) -> tuple[dict[str, Any], list[str]]:
    code, out, err = run(capsys, "diagnose", *arguments, "--format", "json", "--no-progress")
    assert code == 0, err
    return json.loads(out), err


def unread(document: dict[str, Any]) -> list[str]:
    entries = [entry for entry in document["evidence"] if not entry["read"]]
    assert all(not entry["complete"] and entry["notes"] for entry in entries)
    return [Path(entry["path"]).name for entry in entries]


def test_the_others_are_diagnosed_as_if_they_had_been_given_alone(capsys: Output, good: Path, broken: Path) -> None:
    alone, _ = diagnosed(capsys, good)
    found, err = diagnosed(capsys, broken, good)
    assert found["findings"] == alone["findings"]
    assert found["ruled_out"] == alone["ruled_out"]
    assert unread(found) == ["rank1.json.gz"]
    assert [broken.name in line for line in err] == [True]


def test_a_folder_is_diagnosed_without_its_damaged_files(capsys: Output, good: Path, broken: Path) -> None:
    folder = good.parent
    (folder / "empty.nsys-rep").touch()
    (folder / "cut.sqlite").write_bytes(CUT_SQLITE)
    (folder / "gone.json").symlink_to(folder / "nowhere")
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "zeros.nsys-rep").write_bytes(bytes(5000))
    (folder / "stderr.log").touch()
    (folder / "README.md").write_text("about these files\n")
    found, err = diagnosed(capsys, folder)
    lost = ["empty.nsys-rep", "gone.json", broken.name, "zeros.nsys-rep"]
    assert sorted([*unread(found), "cut.sqlite"]) == sorted({*lost, "cut.sqlite"})
    assert all(sum(name in line for line in err) == 1 for name in lost)
    assert "doctor: passed by, since no reader knows them: cut.sqlite, loop.json, stderr.log" in err
    assert not any("stderr.log" in str(entry) for entry in found["evidence"])


@pytest.mark.parametrize("output_format", ["terminal", "markdown", "html", "sarif", "junit", "github"])
def test_every_report_names_what_was_not_read(capsys: Output, good: Path, broken: Path, output_format: str) -> None:
    code, out, _ = run(capsys, "diagnose", good, broken, "--format", output_format, "--no-progress")
    assert code == 0
    assert "rank1" in out
    assert "not read: its gzip data ends too early" in " ".join(out.split())


def test_the_exit_code_is_that_of_the_rest(capsys: Output, good: Path, broken: Path) -> None:
    alone, together = ("diagnose", good), ("diagnose", good, broken)
    for bar in ("high", "critical"):
        assert run(capsys, *together, "--fail-on", bar)[0] == run(capsys, *alone, "--fail-on", bar)[0]
    assert run(capsys, *together, "--strict")[0] == 3


def test_one_line_each_where_nothing_can_be_read(capsys: Output, tmp_path: Path, broken: Path) -> None:
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "notes.txt").write_text("call me back\n")
    named = (broken, tmp_path / "empty.sqlite", tmp_path / "notes.txt")
    code, out, err = run(capsys, "diagnose", *named)
    assert (code, out) == (2, "")
    assert [path.name in line for path, line in zip(named, err, strict=True)] == [True, True, True]
    code, out, err = run(capsys, "diagnose", tmp_path)
    assert (code, out, len(err)) == (2, "", 2)


def test_what_fails_in_its_middle_leaves_nothing_behind(capsys: Output, good: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.json.gz"
    head = f'{{"schemaVersion": 1, "traceEvents": [{",".join([KERNEL] * 130_000)}'.encode()
    bomb.write_bytes(gzip.compress(head + b" " * (1 << 27)))
    saved = tmp_path / "case.duckdb"
    found, err = diagnosed(capsys, bomb, good, "--save", saved)
    assert unread(found) == ["bomb.json.gz"]
    assert "unpacks to more than" in err[0]
    code, out, _ = run(capsys, "sql", saved, "SELECT count(*), (SELECT count(*) FROM source) FROM kernel")
    assert (code, out.split()[-2:]) == (0, ["0", "1"])


def test_a_saved_case_remembers_what_it_lacks(capsys: Output, good: Path, broken: Path, tmp_path: Path) -> None:
    saved = tmp_path / "case.duckdb"
    first, _ = diagnosed(capsys, good, broken, "--save", saved)
    again, err = diagnosed(capsys, saved)
    assert again["evidence"] == first["evidence"]
    assert [broken.name in line for line in err] == [True]


def test_a_case_of_nothing_is_not_saved(capsys: Output, broken: Path, tmp_path: Path) -> None:
    assert run(capsys, "diagnose", broken, "--save", tmp_path / "case.duckdb")[0] == 2
    assert list(tmp_path.iterdir()) == [broken]


def test_a_misspelt_name_is_refused_before_anything_is_read(capsys: Output, good: Path) -> None:
    code, out, err = run(capsys, "diagnose", good, good.with_name("godo.log"))
    assert (code, out) == (2, "")
    assert [line.count("godo.log") for line in err] == [1]


def test_standard_input_may_be_what_cannot_be_read(capsys: Output, monkeypatch: pytest.MonkeyPatch, good: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CUT_GZIP)))
    found, err = diagnosed(capsys, "-", good)
    assert unread(found) == ["-"]
    assert len(err) == 1
    assert "/standard-input" not in err[0] + json.dumps(found)


def test_a_check_goes_on_and_says_so(capsys: Output, good: Path, broken: Path) -> None:
    (good.parent / "doctor.toml").write_text(
        f'[checks.serving]\nevidence = ["{good}", "{broken}"]\nat_most = "critical"\n', "utf-8"
    )
    settings = good.parent / "doctor.toml"
    code, out, err = run(capsys, "check", settings)
    assert code == 0
    assert broken.name in out
    assert [broken.name in line for line in err] == [True]
    assert run(capsys, "check", settings, "--strict")[0] == 3
    good.write_bytes(CUT_GZIP)
    code, _, err = run(capsys, "check", settings)
    assert code == 2
    assert good.name in err[0]
    assert broken.name in err[0]


def test_a_comparison_goes_on_and_says_so(capsys: Output, good: Path, broken: Path, tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    good.rename(before / good.name)
    broken.rename(before / broken.name)
    (tmp_path / "after.log").write_text(COMMAND, "utf-8")
    code, _, err = run(capsys, "compare", before, tmp_path / "after.log")
    assert code == 0
    assert [broken.name in line for line in err] == [True]


def test_a_damaged_sample_is_a_miss_and_not_the_end_of_the_score(capsys: Output, tmp_path: Path) -> None:
    expected = {"first": "cudagraph-off", "allowed": [], "ruled_out": [], "measured_speedup": {}, "half": "fit"}
    samples = {
        "ill": {"command.log": COMMAND.encode()},
        "lost": {"trace.gz": CUT_GZIP},
        "half": {"command.log": COMMAND.encode(), "more.gz": CUT_GZIP},
    }
    for name, files in samples.items():
        (tmp_path / name).mkdir()
        for file, content in files.items():
            (tmp_path / name / file).write_bytes(content)
        known = expected | ({"evidence": [list(files)]} if name == "half" else {})
        (tmp_path / name / "expected.json").write_text(json.dumps(known), "utf-8")
    code, out, err = run(capsys, "score", tmp_path, "--format", "json", "--no-progress")
    assert code == 1
    results = {result["sample"]: result for result in json.loads(out)["diagnoses"]}
    assert [results[name]["found"] for name in ("ill", "lost", "half")] == ["cudagraph-off", None, "cudagraph-off"]
    assert "gzip" in results["lost"]["error"]
    assert ["more.gz" in line for line in err] == [True]


@pytest.fixture
def case_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "case"
    folder.mkdir()
    return folder


def last_event(folder: Path, *paths: Path) -> object:
    process = LoadingProcess(LoadRequest(tuple(map(str, paths)), DiagnosisOptions(), folder))
    with contextlib.ExitStack() as stack:
        stack.callback(process.stop)
        return list(process.events())[-1]


def test_the_application_loads_the_rest(case_folder: Path, good: Path, broken: Path) -> None:
    event = last_event(case_folder, good, broken)
    assert isinstance(event, Diagnosed)
    assert [file.is_read for file in event.diagnosis.evidence] == [True, False]
    (good).write_bytes(CUT_GZIP)
    event = last_event(case_folder, good, broken)
    assert isinstance(event, LoadFailed)
    assert good.name in event.message
    assert broken.name in event.message


def test_names_that_no_screen_can_show_are_told_in_one_line(capsys: Output, tmp_path: Path) -> None:
    folder = tmp_path / "two\nlines\x1b[31m"
    folder.mkdir()
    (folder / "serve.log").write_text(COMMAND, "utf-8")
    Path(os.fsdecode(os.fsencode(folder) + b"/bad\xff.json.gz")).write_bytes(CUT_GZIP)
    found, err = diagnosed(capsys, folder)
    assert unread(found) == ["bad\\udcff.json.gz"]
    assert [line.count("bad\\udcff.json.gz") for line in err] == [1]
    assert "\x1b" not in err[0]


@pytest.mark.parametrize(
    "content",
    [
        '{"output_throughput": 5.5, "p99_tpot_ms": 3, "completed": 4, "backend": "\\ud800bad"}',
        '{"architectures": ["\\udc00"], "model_type": "\\ud800", "num_hidden_layers": 4, "hidden_size": 64}',
        '{"max_num_seqs": 4, "max_model_len": 8192, "quantization": "\\ud800"}',
        '{"schema": "engine.bench/1", "output_tokens_per_s": 5, "counters": {"\\ud800": 3}}',
        '{"schemaVersion": 1, "traceEvents": [' + KERNEL.replace('"k"', '"\\ud800"') + "]}",
    ],
)
def test_half_a_pair_of_surrogates_is_one_odd_character(capsys: Output, tmp_path: Path, content: str) -> None:
    (tmp_path / "evidence.json").write_text(content, "utf-8")
    found, _ = diagnosed(capsys, tmp_path / "evidence.json")
    assert [entry["read"] for entry in found["evidence"]] == [True]


def test_a_case_whose_window_is_refused_is_not_kept(capsys: Output, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(f'{{"schemaVersion": 1, "traceEvents": [{KERNEL}]}}')
    saved = tmp_path / "case.duckdb"
    code, _, err = run(capsys, "diagnose", tmp_path / "trace.json", "--save", saved, "--range", "no such range")
    assert (code, len(err)) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
