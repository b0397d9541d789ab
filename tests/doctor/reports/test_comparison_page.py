from __future__ import annotations

from dataclasses import replace
from typing import Any

from doctor.comparison.outcome import Comparison, FigureChange, KernelChange, Speed, Unseen
from doctor.reports.comparison_page import comparison_page
from doctor.reports.presentation import Presentation

CURED = Comparison(
    figures=(
        FigureChange("window_seconds", 0.313, 0.0226, 0.072),
        FigureChange("step_seconds", 0.0391, 0.00283, 0.072),
        FigureChange("gpu_busy", 0.068, 0.905, 13.3),
        FigureChange("kernel_median_us", 1.44, None, None),
        FigureChange("output_tokens_per_s", 100.5, 201.0, 2.0),
        FigureChange("ttft_s.p50", 0.1, 0.05, 0.5),
    ),
    gone=("host-dispatch-bound", "cudagraph-off"),
    new=("trace-blind",),
    stayed=(),
    kernels=(KernelChange(f"gemm_{'x' * 200}\x1b[31m", 264, 384, 29_600_000, 0, 800, 0, 3_700_000.0, 0.0),),
    speeds=(
        Speed("decode", 8, 8, 0.0345, 0.0025, 13.8, 11.9, 16.7, True),
        Speed("prefill", 1, 1, 0.0355, 0.0224, 1.58, None, None, True),
    ),
)


def lines() -> list[str]:
    return [" ".join(line.split()) for line in comparison_page(CURED, Presentation(80)).splitlines()]


def test_the_first_line_says_how_much_faster_a_step_is() -> None:
    assert lines()[0] == "A decode step took 34.5 ms and now takes 2.50 ms: 14x faster"
    unstepped = replace(CURED, speeds=())
    assert comparison_page(unstepped, Presentation(80)).startswith("A step took 39.1 ms and now takes 2.83 ms: 14x fas")


def test_figures_stand_side_by_side_with_their_units() -> None:
    assert "gpu busy 6.8 % 90.5 % 13.30" in lines()
    assert "kernel median 1.44 us - -" in lines()
    assert "output tokens per s 100.5 201 2.00" in lines()
    assert "ttft p50 100 ms 50.0 ms 0.50" in lines()


def test_steps_stand_with_their_speed_up_and_its_interval() -> None:
    assert "steps before after mean before mean after before/after (95% interval)" in lines()
    assert "decode 8 8 34.5 ms 2.50 ms 13.80x (11.90-16.70)" in lines()
    assert "prefill 1 1 35.5 ms 22.4 ms 1.58x" in lines()


def test_findings_gone_and_new_are_named() -> None:
    assert "Gone: host-dispatch-bound, cudagraph-off" in lines()
    assert "New: trace-blind" in lines()
    assert not any(line.startswith("Still there") for line in lines())


def test_a_kernel_keeps_its_times_whole_and_its_name_within_the_screen() -> None:
    page = comparison_page(CURED, Presentation(80))
    assert max(map(len, page.splitlines())) <= 80
    assert any(line.startswith("3.70 ms - 264x384 gemm_xxx") for line in lines())
    assert "\x1b" not in page


def first_line(**changed: Any) -> str:
    page = comparison_page(replace(CURED, **changed), Presentation(400))
    return " ".join(page.partition("\n\n")[0].split())


def test_what_the_recorder_took_stands_beside_the_factor_that_it_bends() -> None:
    assert "as recorded" not in first_line()
    sick, cured = first_line(recorder_shares=(0.378, 0.01)), first_line(recorder_shares=(None, 0.352))
    assert sick.endswith("14x faster as recorded, less without the recorder, which took 37.8 % of BEFORE")
    assert cured.endswith("14x faster as recorded, more without the recorder, which took 35.2 % of AFTER")
    assert first_line(gone=("profiler-distorted",)).endswith("as recorded, and the recorder slows launches")
    slower = (Speed("decode", 8, 8, 0.0345, 0.0405, 0.85, 0.77, 0.92, True),)
    assert "1.17x slower as recorded, more without" in first_line(speeds=slower, recorder_shares=(0.378, 0.0))


def test_a_difference_within_chance_is_none() -> None:
    within = (Speed("decode", 8, 8, 0.0345, 0.0340, 1.015, 0.97, 1.05, True),)
    assert first_line(speeds=within).endswith("took 34.5 ms and now takes 34.0 ms: no difference beyond chance")
    same = (Speed("decode", 8, 8, 0.0345, 0.0345, 1.0, 1.0, 1.0, True),)
    assert first_line(speeds=same) == "A decode step takes 34.5 ms in both: no difference"


def test_runs_that_are_not_alike_are_said_so_first_and_nothing_is_praised() -> None:
    unlike = replace(CURED, unlike=("another GPU (A in BEFORE, B in AFTER)", "other work"))
    page = comparison_page(unlike, Presentation(400))
    first, second, _ = page.split("\n", 2)
    assert first == "Not the same work: another GPU (A in BEFORE, B in AFTER); other work. No speed-up is told."
    assert second == "A decode step takes 34.5 ms in BEFORE and 2.50 ms in AFTER."
    assert "faster" not in page
    assert "Only in BEFORE: host-dispatch-bound, cudagraph-off" in page


def test_what_a_cure_may_do_too_is_a_doubt_and_no_verdict() -> None:
    doubts = ("177 matrix products a step in BEFORE, 113 in AFTER",)
    first = first_line(doubts=doubts)
    assert first.startswith(f"Perhaps not the same work: {doubts[0]}. Another model would do that, and so may a cure")
    assert first.endswith("14x faster")


def test_what_the_other_run_could_not_show_is_neither_gone_nor_new() -> None:
    unseen = (
        Unseen("after", "foreign-gpu-process", "it holds no nvml", ("nvml", "nvidia-smi")),
        Unseen("after", "sync-in-step", "it holds no calls of the host"),
        Unseen("before", "comm-exposed", "part of it could not be read"),
    )
    page = comparison_page(replace(CURED, unseen=unseen), Presentation(400)).splitlines()
    assert "Could not be seen in AFTER, since it holds no samples of NVML or nvidia-smi: foreign-gpu-process" in page
    assert "Could not be seen in AFTER, since it holds no calls of the host: sync-in-step" in page
    assert "Could not be seen in BEFORE, since part of it could not be read: comm-exposed" in page


def test_two_steps_tell_no_small_change() -> None:
    few = (Speed("usual", 2, 2, 0.0596, 0.0614, 0.97, None, None, True),)
    assert first_line(speeds=few).endswith("too few to tell that from chance (2 and 2 of them)")
    far = (Speed("usual", 2, 2, 0.0596, 0.0298, 2.0, None, None, True),)
    assert first_line(speeds=far).endswith("2.0x faster")
