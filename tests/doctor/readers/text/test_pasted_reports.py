"""Evidence as people paste it into a report: results under headings, tables turned on their side, options without a
program, lines behind the prefixes of Kubernetes and of quotation marks. Formats of the tools, figures of our own."""

# ruff: noqa: E501 - the tools' own lines are long

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from doctor.case.batch import TableBatch
from doctor.errors import UnknownEvidenceError
from doctor.readers.bench_labels import fields_of
from doctor.readers.protocol import no_progress
from doctor.readers.text.document import TextDocumentReader
from doctor.readers.text.result_heading import conditions_of
from doctor.readers.text.wrapped import unwrapped
from tests.support import engine_texts as texts
from tests.support.verdicts import Clinic


@pytest.fixture
def clinic(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Clinic:
    return Clinic(tmp_path, capfd)


def result(rate: float, concurrency: int = 16, *, bold: bool = False) -> str:
    """The end of a run of `vllm bench serve`."""
    mark = "**" if bold else ""
    return (
        "```\n============ Serving Benchmark Result ============\n"
        "Successful requests:                     400       \n"
        f"Maximum request concurrency:             {concurrency}        \n"
        f"{mark}Output token throughput (tok/s):         {rate:.2f}{mark}    \n"
        "==================================================\n```\n"
    )


def test_two_results_under_headings_are_compared(clinic: Clinic) -> None:
    text = f"### no speculation\n{result(1300.0)}\n### with 6 draft tokens\n{result(700.0, bold=True)}"
    verdicts = clinic.told(text)
    assert verdicts.first == "spec-not-paying"
    assert "6 drafted tokens give 700" in verdicts.finding("spec-not-paying")["summary"]


def test_the_same_results_the_other_way_round_are_no_fault(clinic: Clinic) -> None:
    text = f"### no speculation\n{result(700.0)}\n### with 6 draft tokens\n{result(1300.0)}"
    assert clinic.told(text).found == set()


def test_results_of_different_load_are_not_compared(clinic: Clinic) -> None:
    text = f"### no speculation\n{result(1300.0, 64)}\n### with 6 draft tokens\n{result(700.0, 16)}"
    assert "spec-not-paying" not in clinic.told(text).found


def test_the_command_above_a_result_is_its_condition() -> None:
    above = ["vllm serve org/name \\", "  --tensor-parallel-size 2 \\", "  --enforce-eager", "```", ""]
    told = conditions_of(above)
    assert {name: told[name] for name in ("tp", "eager", "server")} == {"tp": "2", "eager": "true", "server": "vllm"}
    assert "name" not in told["model"]  # told apart, never kept
    assert conditions_of([*above, "Throughput: 3.00 requests/s, 900.00 tokens/s", "plain"]) == {}


def test_a_table_with_a_run_a_column_is_read(clinic: Clinic) -> None:
    table = (
        "> |  | prefix caching off | prefix caching on |\n> |---|---:|---:|\n"
        "> | Aggregate decode | 51.0 tok/s | **94.5** (1.85x) |\n> | TTFT p50 | 6.10 s | **2.20 s** |\n"
        "> | Requests | 192/192 | 192/192 |\n\nmore text\n"
    )
    verdicts = clinic.told(table)
    assert verdicts.first == "prefix-cache-off"
    assert "1.85 times as fast" in verdicts.finding("prefix-cache-off")["summary"]
    swapped = table.replace("off |", "x |").replace("caching on", "caching off").replace("caching x", "caching on")
    assert "prefix-cache-off" not in clinic.told(swapped).found


def test_a_column_of_labels_gives_the_width(clinic: Clinic) -> None:
    table = "| Configuration | Output tok/s | TTFT (ms) |\n|---|---|---|\n| TP=1 | 900 | 140 |\n| TP=4 | 1010 | 130 |\n"
    assert "4 devices give 1.12 times the throughput of 1" in clinic.told(table).finding("tp-too-wide")["summary"]


@pytest.mark.parametrize(
    ("label", "fields"),
    [
        ("tp4dp2", [("tp", "4"), ("dp", "2")]),
        ("w/o CUDA graphs", [("eager", "true")]),
        ("CUDA graphs", [("eager", "false")]),
        ("without prefix caching", [("prefix_caching", "off")]),
        ("4 x GPUs", [("gpus", "4")]),
        ("k=3", [("draft_tokens", "3")]),
        ("no MTP", [("draft_tokens", "0")]),
        ("`awq_marlin`", [("quantization", "awq_marlin")]),
        ("KV cache fp8", []),
        ("our branch", []),
        ("http 2.5", []),
    ],
)
def test_labels_stand_for_settings(label: str, fields: list[tuple[str, str]]) -> None:
    assert list(fields_of(label)) == fields


def test_options_without_their_program_are_read(clinic: Clinic) -> None:
    listed = '          args:\n            - "--model"\n            - "org/name"\n            - "--enforce-eager"\n            - "--max-num-seqs"\n            - "64"\n'
    assert "cudagraph-off" in clinic.told(f"our deployment has\n{listed}and it is slow\n").found
    assert "cudagraph-off" in clinic.told("options are\n--gpu-memory-utilization 0.9 --enforce-eager\n").found
    manual = "options are\n  --enforce-eager       Always use eager mode instead of graphs.\n"
    assert _settings(manual) == []


def test_a_folded_command_of_a_compose_file_is_read(clinic: Clinic) -> None:
    text = "  model-1:\n    image: my/vllm-openai:v0.14.0\n    command: >\n      --model /models/name\n      --dtype auto\n      --enforce-eager\n"
    assert "cudagraph-off" in clinic.told(text).found


def test_a_command_quoted_in_prose_ends_with_the_quotation() -> None:
    assert _settings("we start it with `vllm serve org/name --enforce-eager`, and --max-num-seqs does not help\n") == [
        ("eager", "true")
    ]


def test_benchmarks_of_one_batch_are_commands_of_an_engine() -> None:
    assert ("eager", "true") in _settings("python3 -m sglang.bench_one_batch --batch-size 1 --disable-cuda-graph\n")
    assert ("eager", "true") in _settings("vllm bench latency --model org/name --enforce-eager\n")


def test_older_lines_of_engines_are_read() -> None:
    namespace = "INFO 03-11 17:07:45 [api_server.py:913] args: Namespace(subparser='serve', host=None, enforce_eager=True, quantization=None, tensor_parallel_size=2)\n"
    assert set(_settings(namespace)) >= {("eager", "true"), ("tensor_parallel", "2")}
    profiled = (
        "Memory profiling results: total_gpu_memory=23.50GiB initial_memory_usage=15.30GiB peak_torch_memory=17.00GiB "
        "non_torch_memory=0.35GiB kv_cache_size=3.00GiB gpu_memory_utilization=0.90\nGPU blocks: 1536, # CPU blocks: 2048\n"
    )
    figures = {row["figure"]: row for row in _rows(profiled, "engine_figure")}
    assert figures["kv_memory"]["amount_bytes"] == 3 * 2**30
    assert figures["kv_blocks"]["amount_count"] == 1536
    iteration = (
        "[04/28/2026-09:56:44] [TRT-LLM] [I] iter = 7, global_rank = 0, rank = 0, currank_total_requests = 0/0, "
        "elapsed_time = 0.00506s, timestamp = 2026-04-28 09:56:44, num_scheduled_requests: 10, "
        "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 16}\n"
    )
    [row] = _rows(iteration, "engine_sample")
    assert (row["running_count"], row["waiting_count"], row["step_ns"]) == (10, None, 5_060_000)
    launcher = '{ model_id: "org/name", num_shard: Some(8), quantize: None, max_total_tokens: 4096, waiting_served_ratio: 1.2, max_batch_total_tokens: 16000 }\n'
    assert ("tensor_parallel", "8") in _settings(launcher)


def test_a_refusal_in_gb_is_told(clinic: Clinic) -> None:
    text = (
        "ERROR 03-27 16:43:19 [core.py:343] ValueError: To serve at least one request with the models's max seq len "
        "(120000), (4.40 GB KV cache is needed, which is larger than the available KV cache memory (3.30 GB). Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n"
    )
    assert clinic.told(text).first == "max-model-len-too-high"


def test_the_lines_above_are_seen_in_a_long_log() -> None:
    log = texts.lines(texts.vllm_status(float(place), 8) for place in range(3000))
    [row] = _rows(f"{log}\n### no MTP\n{result(900.0)}", "bench_row")
    assert row["draft_token_count"] == 0


def _rows(text: str, table: str) -> list[dict[str, Any]]:
    """Rows that a text gives; none where it holds no evidence."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_text(text)
        try:
            parts = list(TextDocumentReader().read(path, no_progress))
        except UnknownEvidenceError:
            return []
    return [
        row for part in parts if isinstance(part, TableBatch) and part.table == table for row in part.rows.to_pylist()
    ]


def _settings(text: str) -> list[tuple[str, str]]:
    return [(row["setting"], row["told"]) for row in _rows(text, "engine_setting")]


def broken(text: str, width: int) -> str:
    """The text as a terminal of this width shows it."""
    return "\n".join(line[start : start + width] for line in text.splitlines() for start in range(0, len(line), width))


def test_lines_that_a_terminal_broke_are_read_whole(clinic: Clinic) -> None:
    refusal = (
        "(EngineCore pid=316) ValueError: To serve at least one request with the model's max seq len (90000), (4.10 GiB KV cache "
        "is needed, which is larger than the available KV cache memory (3.90 GiB). Based on the available memory, the estimated "
        "maximum model length is 85600. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.\n"
    )
    assert clinic.told(broken(refusal, 119)).first == "max-model-len-too-high"
    assert "--max-model-len 85600" in str(clinic.told(broken(refusal, 101)).finding("max-model-len-too-high")["fixes"])


def test_equally_long_lines_of_tables_and_logs_stay_apart() -> None:
    log = texts.lines(texts.sglang_decode(float(place), 20 + place) for place in range(30)).encode()
    matrix = "\n".join([f"GPU{row}\t" + "\t".join(["NV18"] * 20) + "\tend" for row in range(8)]).encode()
    series = "\n".join(
        f'vllm:request_decode_time_seconds_bucket{{engine="1",le="{bound}.0",model_name="org/a-long-name"}} 1.0'
        for bound in range(10, 30)
    ).encode()
    box = ("| " + "x" * 90 + " |\n").encode() * 6
    for text in (log, matrix, series, box):
        assert unwrapped(text) == text


def test_figures_of_benchmark_scripts_are_compared_by_their_headings(clinic: Clinic) -> None:
    text = (
        "### decode cuda graph is enabled\n```\nAccuracy: 0.951\nLatency: 6.1 s\nOutput throughput: 3900.5 token/s\n```\n\n"
        "### decode cuda graph is disabled\n```\nAccuracy: 0.951\nLatency: 15.2 s\nOutput throughput: 1500.1 token/s\n```\n"
    )
    assert clinic.told(text).first == "cudagraph-off"
    assert (
        clinic.told(text.replace("enabled", "x").replace("disabled", "enabled").replace("is x", "is disabled")).found
        == set()
    )


def test_emphasised_fields_of_a_line_are_read() -> None:
    line = texts.sglang_decode(0.0, 8).replace("gen throughput", "_accept len: 3.70, gen throughput") + "_"
    [row] = _rows(line + "\n", "engine_sample")
    assert row["accept_length_count"] == 3.7


def test_a_table_with_a_run_a_cell_is_read(clinic: Clinic) -> None:
    table = (
        "|  | batch-size | tp=2 | tp=4 | tp=8 |\n| --- | --- | --- | --- | --- |\n"
        '| in=1<br/>out=200 | 1 | 5.4s<br/>37tok/s | 3.8s<br/>52tok/s | <font style="color:#DF2A3F;">3.9s</font><br/>51tok/s |\n'
        "| | 64 | 9.0s<br/>1420tok/s | 6.5s<br/>1970tok/s | 7.7s<br/>1660tok/s |\n"
    )
    finding = clinic.told(table).finding("tp-too-wide")
    assert "8 devices give 1." in finding["summary"] or "8 devices give 1" in finding["summary"]
    rows = _rows(table, "bench_row")
    assert [(row["tensor_parallel_count"], row["batch_count"], row["output_token_hz"]) for row in rows][:2] == [
        (2, 1, 37),
        (4, 1, 52),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "| Model | TP | tok/s | TTFT (ms) |\n|---|---|---|---|\n| small | 1 | 2400 | 90 |\n| large | 4 | 850 | 190 |\n",
        "7B:\n| TP | tok/s | TTFT (ms) |\n|--|--|--|\n| 1 | 2400 | 90 |\n\n70B:\n| TP | tok/s | TTFT (ms) |\n|--|--|--|\n| 4 | 850 | 190 |\n",
        "| Setup | tok/s | TTFT (ms) |\n|---|---|---|\n| 7B TP=1 | 2400 | 90 |\n| 70B TP=4 | 850 | 190 |\n",
        f"vllm serve org/small -tp 1\n{result(2400.0)}\nvllm serve org/large -tp 4\n{result(850.0)}",
        f"| TP | tok/s | TTFT (ms) |\n|--|--|--|\n| 1 | 2400 | 90 |\n\n### TP=4\n{result(850.0)}",
    ],
    ids=["models", "tables", "labels", "commands", "table and result"],
)
def test_runs_of_different_models_or_tables_are_not_compared(clinic: Clinic, text: str) -> None:
    assert clinic.told(text).found == set()


def test_results_told_in_a_line_each_are_compared(clinic: Clinic) -> None:
    text = "Throughput:\n\n- 1x A100 (TP=1): 0.60 requests/second, 6400 tokens/second\n- 8x A100 (TP=8): 0.31 requests/second, 3100 tokens/second\n"
    assert "8 devices give 0.48 times" in clinic.told(text).finding("tp-too-wide")["summary"]


def test_prose_about_different_loads_or_models_is_not_compared(clinic: Clinic) -> None:
    text = (
        "With TP=2 I see 120 tok/s for one user.\nThe 70B model with TP=4 at concurrency 64: 900 tok/s\n"
        "llama 8b, TP=1, concurrency 64: 2500 tok/s\nIt does 300 tok/s on my card.\n"
    )
    assert clinic.told(text).found == set()
    assert _rows("It does 300 tok/s on TP=2.\nnothing else\n", "bench_row") == []


@pytest.mark.parametrize(
    "text",
    [
        "| Backend | req/s | tok/s |\n|---|---|---|\n| vllm | 4.0 | 1900 |\n| sglang | 7.1 | 3400 |\n",
        "| Tool | req/s | tok/s |\n|---|---|---|\n| TGI | 4.0 | 1900 |\n| TensorRT-LLM | 7.1 | 3400 |\n",
        "| Model | k | draft tokens | tok/s |\n|---|---|---|---|\n| large | - | 3 | 80 |\n| small | - | 0 | 240 |\n",
        "| TP | PP | quantization | tok/s |\n|---|---|---|---|\n| 1 | 1 | fp16 | 900 |\n| 1 | 4 | awq | 300 |\n",
        "| GPU | TP | tok/s |\n|---|---|---|\n| H100 | 1 | 2400 |\n| A10 | 4 | 900 |\n",
        "|  | main | this branch |\n|---|---|---|\n| Output tok/s | 900 | 1400 |\n| TTFT (ms) | 90 | 60 |\n",
    ],
    ids=["backends", "tools", "drafts of two models", "pipelines", "devices", "branches"],
)
def test_tables_that_compare_other_things_give_no_verdict(clinic: Clinic, text: str) -> None:
    assert clinic.told(text).found == set()


@pytest.mark.parametrize(
    "form", ['{{"log":"{}\\n","stream":"stdout"}}', '{{"level":"INFO","message":"{}"}}', "`{}`", "> {}"]
)
def test_a_line_within_another_form_keeps_its_last_field(form: str) -> None:
    [row] = _rows(form.format(texts.sglang_decode(0.0, 8, 7)) + "\n", "engine_sample")
    assert (row["running_count"], row["waiting_count"]) == (8, 7)
