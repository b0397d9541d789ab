"""Evidence is loaded in a process of its own, which ends with whoever asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.diagnosis.options import DiagnosisOptions
from doctor.tui.loading.events import CaseReady, Diagnosed, LoadFailed, LoadRequest, Stage
from doctor.tui.loading.process import LoadingProcess
from tests.support.samples import sample, trace_of

TRACE = trace_of(sample("engine-no-cuda-graphs"))


def events_of(request: LoadRequest) -> list[object]:
    process = LoadingProcess(request)
    try:
        return list(process.events())
    finally:
        process.stop()


def test_a_recording_is_read_derived_and_diagnosed(tmp_path: Path) -> None:
    events = events_of(LoadRequest((str(TRACE),), DiagnosisOptions(), tmp_path))
    assert [event for event in events if isinstance(event, CaseReady)] == [CaseReady(tmp_path / "case.duckdb", ())]
    assert any(isinstance(event, Stage) for event in events)
    last = events[-1]
    assert isinstance(last, Diagnosed)
    assert last.diagnosis.findings[0].rule == "host-dispatch-bound"


def test_a_saved_case_is_opened_where_it_lies(launch_bound: Path, tmp_path: Path) -> None:
    events = events_of(LoadRequest((str(launch_bound),), DiagnosisOptions(), tmp_path))
    assert CaseReady(launch_bound, ()) in events
    assert not list(tmp_path.iterdir())


def test_another_window_of_a_saved_case_is_derived_in_a_copy(launch_bound: Path, tmp_path: Path) -> None:
    events = events_of(LoadRequest((str(launch_bound),), DiagnosisOptions(range_name="decode_step"), tmp_path))
    assert CaseReady(tmp_path / "case.duckdb", ()) in events
    last = events[-1]
    assert isinstance(last, Diagnosed)
    assert last.diagnosis.window is not None
    assert last.diagnosis.window.chosen_by.startswith("--range decode_step")


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    [event] = events_of(LoadRequest((str(tmp_path / "missing"),), DiagnosisOptions(), tmp_path))
    assert isinstance(event, LoadFailed)
    assert "there is no file or folder" in event.message


def test_a_process_that_is_stopped_tells_so(tmp_path: Path) -> None:
    process = LoadingProcess(LoadRequest((str(TRACE),), DiagnosisOptions(), tmp_path))
    process.stop()
    events = list(process.events())
    assert isinstance(events[-1], LoadFailed)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the process in /proc")
def test_the_process_ends_with_whoever_asked(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from doctor.diagnosis.options import DiagnosisOptions\n"
        "from doctor.tui.loading.events import LoadRequest\n"
        "from doctor.tui.loading.process import LoadingProcess\n"
        f"process = LoadingProcess(LoadRequest(({str(TRACE)!r},), DiagnosisOptions(), Path({str(tmp_path)!r})))\n"
        "next(process.events())\n"
        "print(process._process.pid)\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    child = int(done.stdout)
    status = Path(f"/proc/{child}/stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()


def test_the_first_screen_waits_for_no_database() -> None:
    program = "import sys, doctor.tui.app; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert not {"duckdb", "pyarrow", "sqlalchemy", "numpy", "torch"} & set(done.stdout.split())
