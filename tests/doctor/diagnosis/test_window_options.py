"""What `--window`, `--range` and `--unprofiled-seconds` change on a real recording."""

from __future__ import annotations

import json
from typing import Any

import pytest

from doctor.cli.main import main
from doctor.diagnosis.options import DiagnosisOptions
from doctor.diagnosis.outcome import Gain
from doctor.errors import UsageError
from doctor.rule import Severity
from tests.support.recorded import SavedCase, finding_of, saved_case
from tests.support.samples import sample, trace_of

SICK = trace_of(sample("launch-bound-decode-nsys-report"))
RULE = "host-dispatch-bound"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> SavedCase:
    return saved_case(tmp_path_factory.mktemp("case"), SICK)


def gain_of(case: SavedCase, options: DiagnosisOptions) -> Gain:
    gain = finding_of(case.diagnosis(options), RULE).gain
    assert gain is not None
    assert gain.speedup_expected is not None
    assert gain.speedup_bound is not None
    return gain


def test_a_range_is_looked_at_from_its_first_start_to_its_last_end(case: SavedCase) -> None:
    whole, decode = case.diagnosis(), case.diagnosis(DiagnosisOptions(range_name="decode_step"))
    assert whole.window is not None
    assert decode.window is not None
    assert decode.window.chosen_by.startswith("--range decode_step")
    assert decode.window.steps == 8
    assert whole.window.start_ns < decode.window.start_ns < decode.window.end_ns
    # without the prefill, which is not launch-bound step after step, more of the window can be won
    bound = finding_of(decode, RULE).gain
    assert bound is not None
    assert bound.speedup_bound is not None
    assert bound.speedup_bound > (finding_of(whole, RULE).gain or Gain()).speedup_bound  # type: ignore[operator]


def test_a_prefill_alone_is_no_decode_without_graphs(case: SavedCase) -> None:
    prefill = case.diagnosis(DiagnosisOptions(range_name="prefill"))
    assert prefill.window is not None
    assert prefill.window.seconds < 0.1
    assert "cudagraph-off" not in {finding.rule for finding in prefill.findings}


def test_a_window_of_two_steps_holds_two_steps(case: SavedCase) -> None:
    decode = case.diagnosis(DiagnosisOptions(range_name="decode_step")).window
    assert decode is not None
    span = (decode.start_ns, decode.start_ns + (decode.end_ns - decode.start_ns) // 5)
    part = case.diagnosis(DiagnosisOptions(window=span))
    assert part.window is not None
    assert (part.window.start_ns, part.window.end_ns) == span
    assert part.window.chosen_by.startswith("--window")
    assert part.window.steps == 2
    assert finding_of(part, RULE).severity is Severity.CRITICAL  # the program itself calls these two steps


@pytest.mark.parametrize("span", [(10, 10), (20, 10)])
def test_an_empty_window_is_refused(case: SavedCase, span: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="is empty"):
        case.diagnosis(DiagnosisOptions(window=span))


def test_a_range_that_was_not_recorded_is_refused_by_name(case: SavedCase) -> None:
    with pytest.raises(UsageError, match="no range named 'decode'"):
        case.diagnosis(DiagnosisOptions(range_name="decode"))


def test_a_window_in_which_nothing_ran_is_refused(case: SavedCase) -> None:
    with pytest.raises(UsageError, match="holds no device work"):
        case.diagnosis(DiagnosisOptions(window=(1, 2)))


def test_the_measured_time_replaces_the_guess_of_the_profilers_share(case: SavedCase) -> None:
    replay = case.diagnosis(DiagnosisOptions(unprofiled_seconds=0.2)).replay
    assert replay is not None
    assert replay.correction == "unprofiled seconds"
    window = case.diagnosis().window
    assert window is not None
    assert replay.profiler_share == pytest.approx(1 - 0.2 / window.seconds, abs=0.01)


def test_the_more_the_profiler_took_the_less_there_is_to_win(case: SavedCase) -> None:
    slow, quick = (gain_of(case, DiagnosisOptions(unprofiled_seconds=seconds)) for seconds in (0.30, 0.15))
    assert (quick.speedup_expected or 0) < (slow.speedup_expected or 0)
    # the bound is that of the recording, whatever the profiler took
    assert quick.seconds == slow.seconds


def test_the_command_line_takes_the_options(capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--range", "decode_step", "--unprofiled-seconds", "0.2", "--format", "json", "--no-progress")
    assert main(["diagnose", str(SICK), *options]) == 0
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert document["window"]["chosen_by"].startswith("--range decode_step")
    assert document["replay"]["correction"] == "unprofiled seconds"
