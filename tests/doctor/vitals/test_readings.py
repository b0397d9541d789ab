"""One look at the machine: its JSON is what the reader takes back, and its page says what matters."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from doctor.case import schema
from doctor.cli.main import main
from doctor.errors import DeviceError
from doctor.readers.nvml_samples import TABLES
from doctor.reports.presentation import Presentation
from doctor.reports.vitals_page import vitals_page
from doctor.vitals import proc, reading
from doctor.vitals.look import look
from doctor.vitals.nvml import Nvml
from doctor.vitals.sampler import VitalsSampler
from tests.support.reading import read_all, rows

H200 = reading.GpuReading(
    device_id=0,
    name="NVIDIA H200",
    memory_total_bytes=150_754_820_096,
    memory_used_bytes=130_046_361_600,
    busy_share=0.41,
    sm_clock_hz=1_200_000_000,
    sm_clock_max_hz=1_980_000_000,
    power_watts=128.76,
    power_limit_watts=700.0,
    temperature_celsius=39.0,
    pcie_generation=2,
    pcie_generation_max=5,
    pcie_lanes_count=16,
    pcie_lanes_max_count=16,
    is_throttled_sw_thermal=True,
    is_persistence_on=False,
    process_list="listed",
)


@pytest.fixture
def no_device() -> None:
    try:
        with Nvml():
            pytest.skip("this machine has a device")
    except DeviceError:
        pass


def test_every_figure_of_a_reading_is_a_column_of_its_table() -> None:
    shapes = {
        "gpus": reading.GpuReading,
        "processes": reading.GpuProcess,
        "instances": reading.MigInstance,
        "affinities": reading.GpuAffinity,
        "host": reading.HostReading,
        "host_processes": reading.HostProcess,
        "cgroup": reading.CgroupReading,
        "pressure": reading.PressureReading,
    }
    for part, shape in shapes.items():
        columns = schema.metadata.tables[TABLES[part]].columns
        assert {one.name for one in fields(shape)} <= {column.name for column in columns}, part


@pytest.mark.usefixtures("no_device")
def test_says_in_one_line_that_there_is_no_device(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["vitals"]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert "can still be diagnosed" in printed.err


def test_a_look_finds_this_process_without_its_command_line() -> None:
    found = look(None, os.getpid())
    [own] = [one for one in found.host_processes if one.pid == os.getpid()]
    assert own.name is not None
    assert own.name.startswith("python")
    assert own.is_recorded
    assert own.thread_count is not None
    assert own.thread_count >= 1
    assert "pytest" not in reading.as_json(found, "doctor")


def test_a_stopped_process_is_seen_as_such_and_as_a_child() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"], stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in proc.descendants(os.getpid())
        facts = proc.process(child.pid)
        assert facts is not None
        assert facts.parent_pid == os.getpid()
    finally:
        child.kill()
        child.communicate()
    assert proc.process(child.pid) is None


def test_the_reader_takes_back_what_the_sampler_wrote(tmp_path: Path) -> None:
    target = tmp_path / "vitals.jsonl"
    sampler = VitalsSampler(target, 0.02, os.getpid)
    sampler.start()
    assert sampler.stop().count >= 1
    taken = read_all(target)
    assert taken.facts.is_complete
    assert taken.facts.notes == ()
    assert len(taken.column("host_sample", "cpu_count")) == sampler.outcome.count
    assert os.getpid() in taken.column("host_process", "pid")
    assert len(set(taken.column("host_process", "time_ns"))) == sampler.outcome.count


def test_a_sampler_stops_at_its_bound(tmp_path: Path) -> None:
    sampler = VitalsSampler(tmp_path / "vitals.jsonl", 0.02, most_bytes=10)
    sampler.start()
    outcome = sampler.stop()
    assert outcome.count == 0
    assert "10 bytes" in outcome.note


def test_a_sampler_that_cannot_write_says_so_and_harms_nobody(tmp_path: Path) -> None:
    sampler = VitalsSampler(tmp_path / "missing" / "vitals.jsonl", 0.02)
    sampler.start()
    assert "could not be written" in sampler.stop().note


def test_the_page_names_holders_reasons_and_a_slow_link() -> None:
    holder = reading.GpuProcess(
        0, 2670, "python3", "c", 129_392_181_248, is_in_proc=True, process_state="D", parent_pid=1
    )
    page = vitals_page(reading.Reading(1, (H200,), (holder,)), Presentation(width=130))
    assert "121 GiB / 140 GiB" in page
    assert "gen2 x16 of gen5 x16" in page
    assert "thermal slowdown" in page
    assert "2670 python3" in page
    assert "persistence mode is off" in page


def test_the_page_says_that_the_owner_of_memory_is_hidden() -> None:
    page = vitals_page(reading.Reading(1, (H200,)), Presentation(width=130))
    assert "no process is named although memory is used: look on the host" in page


def test_a_reading_as_json_is_evidence(tmp_path: Path) -> None:
    path = tmp_path / "look.json"
    path.write_text(reading.as_json(reading.Reading(1_790_000_000_000_000_000, (H200,)), "doctor"), "utf-8")
    assert rows(read_all(path), "gpu_sample", "memory_used_bytes", "is_throttled_sw_thermal") == [
        (130_046_361_600, True)
    ]


@pytest.mark.gpu
def test_a_real_device_answers() -> None:
    try:
        nvml = Nvml().__enter__()
    except DeviceError as error:
        pytest.skip(error.message)
    found = look(nvml)
    assert found.gpus[0].memory_total_bytes
    assert found.gpus[0].sm_clock_max_hz
    assert found.gpus[0].process_list in {"listed", "empty", "refused"}
