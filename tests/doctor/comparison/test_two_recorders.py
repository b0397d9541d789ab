"""Two recordings of one job, by two tools: its steps take as long in both, and what recorders take is allowed for."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from doctor.cli.compare import _side
from doctor.cli.main import main
from doctor.comparison.alignment import Pair, StepGroup
from doctor.comparison.changes import compare
from doctor.comparison.speed import speeds
from doctor.reports.comparison_page import comparison_page
from doctor.reports.presentation import Presentation
from tests.support.samples import sample
from tests.support.trace_builder import LAYER, Program


def test_a_job_that_the_device_holds_up_is_as_fast_by_both() -> None:
    folder = sample("healthy-compiled-encoder")
    paths = [str(folder / name) for name in ("sick.nsys-rep", "sick.pt.trace.json.gz")]
    comparison = compare(*(_side(path) for path in paths))
    assert comparison.recorders == ("nsys-report", "kineto")
    [speed] = comparison.speeds
    assert speed.speedup == pytest.approx(1.0, abs=0.06)
    assert speed.low is not None
    assert speed.high is not None
    assert speed.low < 1.0 < speed.high
    page = " ".join(comparison_page(comparison, Presentation(400)).split())
    assert page.startswith("Two recorders: Nsight Systems report in BEFORE, PyTorch trace in AFTER.")
    assert "no difference beyond chance and what the recorders take" in page


def test_an_interval_reaches_as_far_as_recorders_may_have_slowed_the_host() -> None:
    # the device works a half and three quarters of the time; a fifth of the rest stays
    before = StepGroup((2.0, 2.1, 1.9) * 4, device_seconds=12.0)
    after = StepGroup((1.0, 1.1, 0.9) * 4, device_seconds=9.0)
    [one], [two] = (speeds([Pair("decode", before, after)], is_one_recorder=is_one) for is_one in (True, False))
    assert one.low is not None
    assert one.high is not None
    assert two.low == pytest.approx(one.low * 0.6)
    assert two.high == pytest.approx(one.high / 0.8)


def test_without_device_work_two_recorders_have_no_interval() -> None:
    steps = StepGroup((1.0, 1.1, 0.9, 1.0))
    [speed] = speeds([Pair("decode", steps, steps)], is_one_recorder=False)
    assert (speed.low, speed.high, speed.speedup) == (None, None, 1.0)


def in_layers(path: Path, *, is_named: bool, waits: bool) -> str:
    """Steps of eight layers with nothing around them; without a name the layers come back, each with a wait or not."""
    program = Program()
    for _ in range(6):
        with program.annotation("decode_step") if is_named else nullcontext():
            for _ in range(8):
                for kernel in LAYER:
                    program.launch(kernel, 20.0)
                if waits:
                    program.wait()
    program.wait()
    return str(program.write(path))


@pytest.mark.parametrize("waits", [False, True])
def test_steps_are_not_held_against_what_may_be_layers_of_them(
    waits: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    named, unnamed = (
        in_layers(tmp_path / f"{is_named}.json", is_named=is_named, waits=waits) for is_named in (True, False)
    )
    assert main(["compare", named, unnamed]) == 0
    page = capfd.readouterr().out
    assert " ".join(page.split()).startswith(
        "Not the same work: steps of another size (what comes back in AFTER may be"
    )
    assert "faster" not in page
