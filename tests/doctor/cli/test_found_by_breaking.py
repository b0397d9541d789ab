"""Ways in which doctor was broken once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from doctor.cli.main import main

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
