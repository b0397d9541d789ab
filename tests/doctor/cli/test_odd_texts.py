"""Texts as consoles, editors and disks leave them: other encodings, other ends of lines, words that decide nothing."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.main import main

LOG = """INFO 11-29 12:00:00 api_server.py:712] vLLM API server version 0.11.0
vllm serve meta-llama/Llama-3.1-8B --enforce-eager --max-model-len 8192
INFO 11-29 12:00:01 [gpu_worker.py:298] Available KV cache memory: 54.84 GiB
"""

Output = pytest.CaptureFixture[str]


def diagnosed(capsys: Output, path: Path) -> dict[str, Any]:
    code = main(["diagnose", str(path), "--format", "json", "--no-progress"])
    out, err = capsys.readouterr()
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.mark.parametrize(
    "content",
    [
        LOG.encode("utf-16"),
        LOG.encode("utf-16-le"),
        LOG.encode("utf-16-be"),
        codecs.BOM_UTF16_BE + LOG.encode("utf-16-be"),
        codecs.BOM_UTF8 + LOG.encode(),
        LOG.replace("\n", "\r\n").encode(),
        LOG.replace("\n", "\r").encode(),
        LOG.replace("\n", "\r").encode("utf-16-le"),
        bytes(1 << 21) + LOG.encode(),
    ],
    ids=["utf-16", "le", "be", "be-mark", "utf-8-mark", "crlf", "cr", "cr-le", "zeros-before"],
)
def test_a_log_is_read_however_its_characters_and_lines_are_written(
    capsys: Output, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "serve.log").write_bytes(content)
    document = diagnosed(capsys, tmp_path / "serve.log")
    assert document["findings"][0]["rule"] == "cudagraph-off"


@pytest.mark.parametrize(("word", "told"), [("maybe", []), ("Yes", ["yes"]), ("off", ["off"]), ("true", ["true"])])
def test_a_word_that_is_neither_true_nor_false_sets_nothing(
    capsys: Output, tmp_path: Path, word: str, told: list[str]
) -> None:
    (tmp_path / "vllm.yaml").write_text(f"max_model_len: 8192\ntensor_parallel_size: 1\nenforce_eager: {word}\n")
    saved = str(tmp_path / "case.duckdb")
    assert main(["diagnose", str(tmp_path / "vllm.yaml"), "--save", saved, "--format", "json"]) == 0
    [evidence] = json.loads(capsys.readouterr().out)["evidence"]
    assert evidence["complete"] is bool(told)
    assert ("enforce_eager is neither true nor false: passed over" in evidence["notes"]) is not bool(told)
    assert main(["sql", saved, "SELECT told FROM engine_setting WHERE setting = 'eager'", "--format", "json"]) == 0
    assert [row["told"] for row in json.loads(capsys.readouterr().out)] == told
