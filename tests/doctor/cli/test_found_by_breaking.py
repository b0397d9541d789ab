"""Ways in which doctor was broken once."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

import doctor
from doctor.cli.main import main
from tests.support.samples import sample, trace_of
from tests.support.trace_builder import Program, decode_step

COMMAND = "vllm serve meta-llama/Llama-3.1-8B --enforce-eager --max-model-len 8192\n"
BUSY_CARD = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |
| N/A   48C    P0            461W /  700W |   72000MiB / 143771MiB |     98%      Default |
+-----------------------------------------+------------------------+----------------------+
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""


@pytest.mark.parametrize(
    "text",
    [
        '[2025-11-29 10:00:00] server_args=ServerArgs(api_key="hidden", host="10.0.0.1")\n',
        '{"model": "x", "api_key": "hidden"}',
        '[1.5, {"api_key": "hidden"}]',
    ],
)
def test_what_only_begins_like_a_trace_is_not_called_redacted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_text(text, "utf-8")
    assert main(["redact", str(source), "-o", str(copy)]) == 2
    assert not copy.exists()
    assert "only these are redacted" in capsys.readouterr().err


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["diagnose", str(tmp_path / "pipe")]) == 2
    assert "no regular file" in capsys.readouterr().err


def test_engine_evidence_may_come_after_many_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        (tmp_path / f"node{number}.log").write_text(COMMAND, "utf-8")
    assert main(["diagnose", str(tmp_path), "--format", "json", "--no-progress"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"][0]["rule"] == "cudagraph-off"


def test_a_busy_device_whose_processes_are_not_shown_is_held_by_no_dead_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "smi.txt").write_text(BUSY_CARD, "utf-8")
    assert main(["diagnose", str(tmp_path / "smi.txt"), "--format", "json", "--no-progress"]) == 0
    found = {finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert found == {"hidden-owner-pid-namespace"}


@pytest.mark.parametrize("command", ["diagnose", "check"])
def test_a_report_never_takes_the_place_of_its_evidence(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.nsys-rep"
    path.write_bytes(trace_of(sample("launch-bound-decode-nsys-report")).read_bytes())
    before = path.read_bytes()
    assert main([command, str(path), "-o", str(path)]) == 2
    assert "it is the evidence itself" in capfd.readouterr().err
    assert path.read_bytes() == before


def test_looks_of_one_device_without_an_index_are_no_more_devices(tmp_path: Path) -> None:
    rows = [f"2026/11/29 10:00:{second:02}.000, NVIDIA H100, 50 %, 1000 MiB, 81559 MiB" for second in range(9)]
    path = tmp_path / "smi.csv"
    path.write_text("\n".join(["timestamp, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]", *rows]))
    with doctor.load(path) as case:
        assert case.execute("SELECT count(DISTINCT device_id), count(*) FROM gpu_sample").fetchall() == [(1, 9)]


def test_folders_in_the_names_of_ranges_are_not_kept(tmp_path: Path) -> None:
    program = Program()
    with program.annotation("load /home/somebody/secret/weights.safetensors"):
        decode_step(program)
    with doctor.load(program.write(tmp_path / "trace.json")) as case:
        names = [name for (name,) in case.execute("SELECT text FROM text WHERE text LIKE '%safetensors'").fetchall()]
    assert names == ["load weights.safetensors"]


def test_an_out_of_memory_text_that_names_nobody_gets_the_settings_of_torch_first(tmp_path: Path) -> None:
    path = tmp_path / "error.txt"
    path.write_text(
        "CUDA out of memory. Tried to allocate 128.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which"
        " 100.00 MiB is free. Including non-PyTorch memory, this process has 79.05 GiB memory in use."
        " Of the allocated memory 78.30 GiB is allocated by PyTorch, and 20.00 MiB is reserved but unallocated."
    )
    assert doctor.diagnose(path).frameworks == ("pytorch",)


def test_a_table_that_never_asked_for_processes_hides_none(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_text(
        "index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n0, 97 %, 60000 MiB, 81920 MiB\n"
    )
    assert "hidden-owner-pid-namespace" not in {finding.rule for finding in doctor.diagnose(path).findings}


def test_a_script_among_the_rules_of_ones_own_ends_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit(7)\n")
    assert main(["rules", "--rules", str(tmp_path)]) == 2
    assert "does not load: SystemExit: 7" in capfd.readouterr().err


def test_redact_refuses_an_export_whose_table_names_are_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)")
    path.write_bytes(path.read_bytes().replace(b"CUPTI_ACTIVITY_KIND_KERNEL", b"CUPTI_ACTIVITY_KIND_KER\xdd\xddL"))
    assert main(["redact", str(path), "-o", str(tmp_path / "out.sqlite")]) == 2
    assert "damaged" in capfd.readouterr().err
