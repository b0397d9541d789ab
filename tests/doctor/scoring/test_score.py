"""`doctor score`: what is right, missed or a false alarm, and what promises are worth."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.main import main
from doctor.errors import UsageError
from doctor.rule import Severity
from doctor.scoring.expected import Half, MeasuredSpeedup, read_expected
from doctor.scoring.judging import judge
from doctor.scoring.outcome import Judged, Promise
from doctor.scoring.running import score
from doctor.scoring.samples import find_samples
from doctor.scoring.tally import Score, accuracy
from tests.support.diagnoses import launch_bound
from tests.support.recorded import diagnosis_of
from tests.support.samples import sample as shipped

LAUNCH = shipped("launch-bound-decode-torch-trace") / "launch-sick.pt.trace.json.gz"
HEALTHY = shipped("graph-decode-torch-trace") / "healthy-fixed.pt.trace.json.gz"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 1.50 GiB is free. Process 4242 has 70.00 GiB memory in use. Including non-PyTorch memory, this process "
    "has 7.65 GiB memory in use. Of the allocated memory 7.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved "
    "by PyTorch but unallocated.\n"
)
LAUNCH_GROUP = ["cudagraph-off", "tiny-kernels"]


def expected(folder: Path, **fields: Any) -> Path:
    """Write an `expected.json`; a field not given is empty."""
    whole = {"first": None, "allowed": [], "ruled_out": [], "measured_speedup": {}, "half": "test"} | fields
    path = folder / "expected.json"
    path.write_text(json.dumps(whole), encoding="utf-8")
    return path


def made(root: Path, name: str, *recordings: Path, **fields: Any) -> Path:
    """A sample folder with copies of recordings."""
    folder = root / name
    folder.mkdir()
    for recording in recordings:
        shutil.copyfile(recording, folder / recording.name)
    expected(folder, **fields)
    return folder


def scored(root: Path) -> Score:
    """Every diagnosis is that of the shipped recording of the same name, made once."""
    shipped_as = {path.name: path for path in (LAUNCH, HEALTHY)}
    return score(root, lambda *paths: diagnosis_of(*(shipped_as.get(path.name, path) for path in paths)))


def test_what_is_expected_is_right(tmp_path: Path) -> None:
    made(tmp_path, "a", LAUNCH, first="host-dispatch-bound", allowed=LAUNCH_GROUP)
    made(tmp_path, "b", HEALTHY, allowed=["host-dispatch-bound"], half="fit")
    result = scored(tmp_path)
    assert result.is_right
    assert [(one.sample, one.recorder, one.half) for one in result.results] == [
        ("a", "kineto", Half.TEST),
        ("b", "kineto", Half.FIT),
    ]
    assert result.confusion("kineto") == {("host-dispatch-bound", "host-dispatch-bound"): 1, (None, None): 1}
    assert [tally.name for tally in result.by_half()] == ["fit", "test"]


def test_a_wrong_first_finding_is_a_miss_and_an_alarm(tmp_path: Path) -> None:
    made(tmp_path, "a", LAUNCH, first="pageable-copies", ruled_out=["host-dispatch-bound"])
    [result] = scored(tmp_path).results
    assert not result.is_first_right
    assert result.found == "host-dispatch-bound"
    assert result.missed == ("pageable-copies", "host-dispatch-bound")
    assert {alarm.rule for alarm in result.alarms} >= {"host-dispatch-bound"}
    assert max(alarm.severity for alarm in result.alarms) is Severity.CRITICAL


def test_a_grave_finding_on_a_healthy_run_is_an_alarm_even_where_it_is_allowed(tmp_path: Path) -> None:
    made(tmp_path, "a", LAUNCH, allowed=["host-dispatch-bound", *LAUNCH_GROUP])
    [result] = scored(tmp_path).results
    assert not result.is_right
    assert result.found == "host-dispatch-bound"
    assert {alarm.severity for alarm in result.alarms} == {Severity.CRITICAL}


def test_a_low_finding_that_is_not_allowed_is_told_and_fails_nothing(tmp_path: Path) -> None:
    made(tmp_path, "a", HEALTHY)
    result = scored(tmp_path)
    [one] = result.results
    assert {alarm.severity for alarm in one.alarms} <= {Severity.LOW}
    assert result.is_right


def test_evidence_that_cannot_be_read_is_a_miss(tmp_path: Path) -> None:
    folder = made(tmp_path, "a", first="host-dispatch-bound", evidence=[["broken.sqlite"]])
    (folder / "broken.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(40))
    [result] = score(tmp_path).results
    assert result.error
    assert result.missed == ("host-dispatch-bound",)
    assert not result.is_right


def test_each_recording_is_diagnosed_alone_and_everything_else_together(tmp_path: Path) -> None:
    folder = made(tmp_path, "a", LAUNCH, HEALTHY)
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text(OOM, encoding="utf-8")
    (folder / "notes.md").write_text(OOM, encoding="utf-8")
    (folder / "unknown.bin").write_bytes(b"\x00\x01\x02")
    [found] = find_samples(tmp_path)
    assert [[path.name for path in group] for group in found.groups] == [
        [HEALTHY.name],
        [LAUNCH.name],
        ["one.txt", "two.txt"],
    ]


def test_what_is_named_together_is_diagnosed_together(tmp_path: Path) -> None:
    made(tmp_path, "a", LAUNCH, HEALTHY, evidence=[[LAUNCH.name, HEALTHY.name]])
    [found] = find_samples(tmp_path)
    assert [[path.name for path in group] for group in found.groups] == [[LAUNCH.name, HEALTHY.name]]


def test_text_is_scored_too(tmp_path: Path) -> None:
    folder = made(tmp_path, "a", first="foreign-gpu-process")
    (folder / "oom.txt").write_text(OOM, encoding="utf-8")
    [result] = score(tmp_path).results
    assert result.recorder == "other"
    assert result.found == "foreign-gpu-process"


def test_a_promise_is_that_of_the_cause_a_finding_shares(tmp_path: Path) -> None:
    measured = {"cudagraph-off": {"median": 4.0, "low": 3.5, "high": 4.5}}
    made(tmp_path, "a", LAUNCH, first="host-dispatch-bound", allowed=LAUNCH_GROUP, measured_speedup=measured)
    [found] = find_samples(tmp_path)
    [promise] = judge(found, (LAUNCH.name,), launch_bound()).promises
    assert (promise.expected, promise.low, promise.high, promise.bound) == (4.1, 3.2, 5.0, 4.9)
    assert promise.is_inside


def test_what_must_be_cleared_is_no_promise(tmp_path: Path) -> None:
    measured = {"sync-in-step": {"median": 1.0, "low": None, "high": None}}
    made(tmp_path, "a", LAUNCH, first="host-dispatch-bound", ruled_out=["sync-in-step"], measured_speedup=measured)
    [result] = scored(tmp_path).results
    assert result.promises == ()


def promise(measured: float, expected: float, low: float, high: float, bound: float) -> Promise:
    return Promise("rule", MeasuredSpeedup(measured), expected, low, high, bound)


def test_accuracy_is_told_in_medians_and_by_the_worst() -> None:
    told = accuracy(
        [
            ("exact", promise(2.0, 2.0, 1.0, 4.0, 4.0)),
            ("half", promise(4.0, 2.0, 1.0, 3.0, 3.5)),
            ("over", promise(1.0, 1.5, 1.2, 1.8, 2.0)),
            ("none", Promise("rule", MeasuredSpeedup(3.0))),
        ]
    )
    assert (told.measured_count, told.promised_count) == (4, 3)
    assert told.median_abs_log_error == pytest.approx(math.log(1.5))
    assert told.worst is not None
    assert told.worst[0] == "half"
    assert told.share_inside == pytest.approx(1 / 3)
    assert told.median_width == pytest.approx(3)
    assert told.median_bound_ratio == pytest.approx(2)
    assert [sample for sample, _ in told.broken_bounds] == ["half"]


def test_nothing_promised_gives_no_figures() -> None:
    told = accuracy([])
    assert told.median_abs_log_error is None
    assert told.worst is None
    assert told.share_inside is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON that can be read"),
        ("[]", "is no JSON object"),
        ("{}", "lacks the field allowed"),
        ('{"primary": null}', "has an unknown field primary"),
        ('{"first": 1, "allowed": [], "ruled_out": [], "measured_speedup": {}, "half": "fit"}', "1 is no name"),
        ('{"first": null, "allowed": "x", "ruled_out": [], "measured_speedup": {}, "half": "fit"}', "is no list"),
        ('{"first": null, "allowed": [], "ruled_out": [], "measured_speedup": {}, "half": "some"}', "'some'"),
        (
            '{"first": null, "allowed": [], "ruled_out": [], "measured_speedup": {"x": 2}, "half": "fit"}',
            "another form",
        ),
        (
            '{"first": null, "allowed": [], "ruled_out": [], "half": "fit",'
            ' "measured_speedup": {"x": {"median": 0, "low": null, "high": null}}}',
            "a factor over 0",
        ),
    ],
)
def test_a_wrong_expectation_is_told_in_a_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "expected.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"expected\.json") as raised:
        read_expected(path)
    assert says in raised.value.message
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(("names", "says"), [((), "and no evidence beside it"), ([["gone.txt"]], "that is not there")])
def test_a_sample_holds_evidence(tmp_path: Path, names: list[list[str]], says: str) -> None:
    expected(tmp_path, evidence=list(names))
    with pytest.raises(UsageError, match=says):
        find_samples(tmp_path)


def test_the_command_exits_with_1_where_a_sample_is_wrong(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = made(tmp_path, "wrong", first="fragmentation")
    (folder / "oom.txt").write_text(OOM, encoding="utf-8")
    assert main(["score", str(tmp_path), "--format", "json", "--no-progress"]) == 1
    document = json.loads(capfd.readouterr().out)
    assert document["schema"] == "doctor.score/1"
    assert document["right"] is False
    assert document["confusion"] == {
        "other": [{"expected": "fragmentation", "found": "foreign-gpu-process", "count": 1}]
    }
    expected(folder, first="foreign-gpu-process")
    assert main(["score", str(tmp_path), "--format", "markdown", "--no-progress"]) == 0
    page = capfd.readouterr().out
    assert page.startswith("## 1 of 1 diagnoses have the right first finding, nothing missed")
    assert "| foreign-gpu-process | foreign-gpu-process | 1 |" in page


def test_the_screen_shows_wrong_samples_and_promises(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    measured = {"host-dispatch-bound": {"median": 4.0, "low": 3.9, "high": 4.1}}
    made(tmp_path, "a", LAUNCH, first="pageable-copies", measured_speedup=measured)
    assert main(["score", str(tmp_path), "--no-progress"]) == 1
    shown = capfd.readouterr().out
    assert "0 of 1 diagnoses have the right first finding, 1 with something wrong" in shown
    assert "4.00 (3.90 to 4.10)" in " ".join(shown.split())


def test_a_narrow_screen_breaks_no_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {"host-dispatch-bound": {"median": 4.0, "low": 3.9, "high": 4.1}}
    made(tmp_path, "a-sample-of-a-long-name", LAUNCH, first="pageable-copies", measured_speedup=measured)
    shown: dict[int, str] = {}
    for columns in (60, 80, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["score", str(tmp_path), "--no-progress"]) == 1
        shown[columns] = capfd.readouterr().out
        assert max(map(len, shown[columns].splitlines())) <= columns
    assert set(shown[60].replace(";", "").split()) == set(shown[80].replace(";", "").split())
    for words in ("a-sample-of-a-long-name", "host-dispatch-bound", "bound/measured", "measured"):
        assert all(words in text for text in shown.values())


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_samples_is_told_in_a_line(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["score", str(tmp_path / name), "--no-progress"]) == 2
    assert capfd.readouterr().err.count("\n") == 1


def test_a_result_tells_its_own_story() -> None:
    right = Judged("s", ("f",), "nsys", Half.FIT, None, None)
    assert right.is_right
    assert not Judged("s", ("f",), "nsys", Half.FIT, None, None, error="unreadable").is_right
