from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

import pytest

from doctor.diagnosis.outcome import Diagnosis, EvidenceFile, Gain
from doctor.reports.presentation import Presentation, render
from doctor.rule import Severity
from tests.support import diagnoses

FIRST_SCREEN_LINES = 24
EVERY_DIAGNOSIS = (diagnoses.launch_bound, diagnoses.healthy, diagnoses.foreign_process, diagnoses.hostile)


def show(diagnosis: Diagnosis, *, width: int = 80, is_coloured: bool = False, is_unicode: bool = True) -> str:
    return render(diagnosis, "terminal", Presentation(width, is_coloured, is_unicode))


def cells(line: str) -> int:
    return sum(0 if unicodedata.combining(character) else 1 for character in line)


@pytest.mark.parametrize("width", [80, 140])
def test_the_first_screen_names_the_fault_the_setting_and_the_win(width: int) -> None:
    screen = "\n".join(show(diagnoses.launch_bound(), width=width).splitlines()[:FIRST_SCREEN_LINES])
    assert "CRITICAL   Decode is bound by kernel launches" in screen
    assert "drop --enforce-eager" in screen
    assert "torch.compile(model, mode='reduce-overhead')" in screen
    assert "about 4.1x (3.2-5.0), at most 4.9x" in screen


@pytest.mark.parametrize("width", [80, 140])
def test_what_a_terminal_still_shows_of_a_long_report_names_fault_setting_and_win(width: int) -> None:
    last = " ".join("\n".join(show(diagnoses.launch_bound(), width=width).splitlines()[-8:]).split())
    assert "In short Decode is bound by kernel launches. To win: about 4.1x (3.2-5.0), at most 4.9x." in last
    assert "Change, PyTorch: torch.compile(model, mode='reduce-overhead')" in last
    assert "In short" not in show(diagnoses.healthy())


def test_a_win_that_drowns_in_noise_is_no_headline() -> None:
    ill = diagnoses.launch_bound()
    noise = Gain(seconds=0.001, speedup_bound=1.03, speedup_expected=1.01, speedup_low=1.0, speedup_high=1.02)
    low = replace(ill.findings[0], severity=Severity.LOW, gain=noise)
    text = show(replace(ill, findings=(low,)))
    assert text.splitlines()[0].strip().startswith("No rule found anything worth curing; 1 note below")
    assert "within the noise of a run: about 1.01x" in text


def test_fault_win_setting_and_check_stand_on_the_first_screen() -> None:
    first_screen = "\n".join(show(diagnoses.launch_bound()).splitlines()[:24])
    for part in ("Decode is bound by kernel launches", "To win: about", "Change, PyTorch: ", "Verify: "):
        assert part in first_screen


def test_the_verdict_is_the_first_line() -> None:
    assert "Decode is bound by kernel launches" in show(diagnoses.launch_bound()).splitlines()[0]


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize("make", EVERY_DIAGNOSIS)
def test_no_line_is_wider_than_the_screen(make: object, width: int) -> None:
    assert callable(make)
    assert max(cells(line) for line in show(make(), width=width).splitlines()) <= width


def test_sections_come_in_the_order_of_use() -> None:
    text = show(diagnoses.launch_bound())
    headings = (
        "Decode is bound",
        "Kernels are loaded",
        "Looks guilty, is not",
        "Not checked",
        "Top kernels",
        "Recording",
    )
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)


def test_evidence_carries_units_and_its_place() -> None:
    text = show(diagnoses.launch_bound(), width=140)
    assert re.search(r"queue-empty gaps +81\.0 % of window +decode_step, GPU 0, stream 7, 120 us into the window", text)
    assert re.search(r"median kernel +2\.10 us", text)


def test_a_finding_with_the_same_cause_stands_under_its_principal() -> None:
    text = show(diagnoses.launch_bound())
    assert re.search(r"Same cause +CUDA graphs are off +cudagraph-off", text)
    assert "3  " not in text.split("Looks guilty")[0].split("Read more")[-1]


def test_rules_that_were_not_run_are_gathered_by_what_they_need() -> None:
    assert "needs nvml, oom-text  foreign-gpu-process, own-pid-in-container" in show(diagnoses.launch_bound())


def test_a_healthy_run_says_what_was_not_checked_in_the_verdict() -> None:
    first = show(diagnoses.healthy()).splitlines()[0]
    assert "No rule found anything worth curing" in first
    assert "1 rule could not be checked" in first


def test_a_note_alone_is_no_verdict_of_guilt() -> None:
    text = show(diagnoses.healthy_with_a_note())
    assert text.splitlines()[0].strip().startswith("No rule found anything worth curing; 1 note below")
    assert "1  info  The recording hides the kernels of graphs" in text


def test_a_rule_that_had_its_evidence_but_nothing_to_look_at_says_so() -> None:
    text = show(diagnoses.healthy_with_a_note())
    assert "nothing of the kind in this evidence  micro-batch-too-small" in text
    assert "needs nvml, oom-text  foreign-gpu-process" in text


def test_a_setting_is_never_cut_short() -> None:
    narrow = show(diagnoses.launch_bound(), width=48)
    settings = narrow.split("Change")[1].split("Verify")[0]
    assert "…" not in settings
    assert "torch.compile(model,mode='reduce-overhead')" in "".join(settings.split())


def test_a_win_that_is_not_promised_says_so() -> None:
    text = show(diagnoses.untrusted_replay())
    assert "at most 4.9x, not promised" in text
    assert "No win is promised" in text


def test_plain_text_carries_no_escape_sequence() -> None:
    assert "\x1b" not in show(diagnoses.launch_bound())


def test_a_colour_terminal_gets_colour_and_the_same_words() -> None:
    coloured = show(diagnoses.launch_bound(), is_coloured=True)
    assert "\x1b[" in coloured
    words = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert words.split() == show(diagnoses.launch_bound()).split()


def test_a_screen_without_unicode_gets_ascii() -> None:
    text = show(diagnoses.launch_bound(), is_unicode=False)
    assert text.isascii()
    assert "?" not in text


@pytest.mark.parametrize("make", EVERY_DIAGNOSIS)
def test_names_from_evidence_cannot_steer_the_terminal(make: object) -> None:
    assert callable(make)
    text = show(make())
    assert {character for character in text if unicodedata.category(character) in {"Cc", "Cf"}} <= {"\n"}


def test_the_timeline_has_a_row_for_each_kind_of_work_that_occurs() -> None:
    text = show(diagnoses.launch_bound())
    assert re.search(r"^ +compute +▁+", text, re.MULTILINE)
    assert re.search(r"^ +copy +▁ ", text, re.MULTILINE)
    assert "communication " not in text


def test_many_runs_are_an_example_and_a_number() -> None:
    ill = diagnoses.launch_bound()
    others = tuple(
        EvidenceFile(f"runs/{run}/rank{rank}.json", "kineto", None, True, (), run=run, run_reason="recorded later")
        for run in range(2, 14)
        for rank in range(3)
    )
    text = " ".join(show(replace(ill, evidence=(*ill.evidence, *others))).split())
    assert "13 runs in this evidence. Diagnosed: traces/launch-sick.nsys-rep. The others" in text
    assert "`doctor diagnose runs/2/rank0.json runs/2/rank1.json ...` (recorded later); and 11 more" in text
