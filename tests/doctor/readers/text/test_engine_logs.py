from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import doctor
from doctor.errors import EvidenceError
from tests.support import engine_texts as texts


@pytest.fixture
def rows(tmp_path: Path) -> Any:
    """Rows of a table after a text was read: `rows(text, "SELECT ...")`."""

    def read(text: str, *selects: str) -> list[list[tuple[Any, ...]]]:
        path = tmp_path / "evidence"
        path.write_text(text, encoding="utf-8")
        with doctor.load(path) as case:
            return [case.execute(select).fetchall() for select in selects]

    return read


FIGURES = "SELECT figure, coalesce(amount_bytes / 1073741824, amount_count) FROM engine_figure ORDER BY line_id, figure"
SETTINGS = "SELECT setting, told FROM engine_setting ORDER BY setting, told"
SAMPLES = "SELECT running_count, waiting_count, round(kv_usage_share, 3), time_ns FROM engine_sample ORDER BY line_id"


def test_vllm_v1_says_settings_memory_and_state_under_the_prefixes_of_its_processes(rows: Any) -> None:
    log = texts.lines(
        texts.vllm_arguments(max_num_seqs=8, enable_prefix_caching=False),
        "2026-04-19 12:09:51.205 | (EngineCore pid=207) INFO 04-19 10:09:51 [core.py:107] Initializing a V1 LLM "
        "engine (v0.19.2rc1.dev8) "
        "with config: model='org/private', speculative_config=None, dtype=torch.bfloat16, max_seq_len=16384, "
        "quantization=None, "
        "enforce_eager=False, kv_cache_dtype=fp8_e4m3, compilation_config={'mode': <CompilationMode.VLLM_COMPILE: 3>, "
        "'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, 'max_cudagraph_capture_size': 512}",
        "(Worker_TP1 pid=9) INFO 04-19 10:10:00 [gpu_model_runner.py:4879] Model loading took 21.86 GiB memory "
        "and 33.868409 seconds",
        "\x1b[0;36m(EngineCore pid=207)\x1b[0;0m INFO 04-19 10:10:10 [gpu_worker.py:440] Available KV cache "
        "memory: -0.50 GiB",
        "(EngineCore pid=207) INFO 04-19 10:10:10 [kv_cache_utils.py:1708] GPU KV cache size: 20,992 tokens",
        "(EngineCore pid=207) INFO 04-19 10:10:40 [gpu_model_runner.py:6971] Graph capturing finished in 13 secs, "
        "took 0.58 GiB",
        texts.vllm_status(10, 5, 7, 99.1, engine=3, preemptions=2),
    )
    settings, figures, samples, events = rows(
        log, SETTINGS, FIGURES, SAMPLES, "SELECT event, detail FROM engine_event WHERE event = 'version'"
    )
    told = dict(settings)
    assert told["running_limit"] == "8"
    assert told["prefix_cache"] == "false"
    assert (told["kv_dtype"], told["graph_max_batch"], told["graph_mode"]) == ("fp8_e4m3", "512", "full_and_piecewise")
    assert ("weights", 21.86) in [(name, round(value, 2)) for name, value in figures if value]
    assert ("kv_memory", -0.5) in figures
    assert ("kv_tokens", 20992) in figures
    assert [sample[:3] for sample in samples] == [(5, 7, 0.991)]
    assert events == [("version", "0.19.2rc1.dev8")]


def test_vllm_v0_says_memory_in_one_line_and_preemptions_as_a_running_count(rows: Any) -> None:
    log = texts.lines(
        "INFO 08-23 12:00:00 worker.py:266] the current vLLM instance can use total_gpu_memory (79.11GiB) x "
        "gpu_memory_utilization "
        "(0.90) = 71.20GiB",
        "INFO 08-23 12:00:00 worker.py:266] model weights take 14.99GiB; non_torch_memory takes 0.15GiB; PyTorch "
        "activation peak memory "
        "takes 1.23GiB; the rest of the memory reserved for KV Cache is 54.84GiB.",
        "WARNING 08-23 12:01:00 scheduler.py:1481] Sequence group cmpl-f5a9-0 is preempted by "
        "PreemptionMode.RECOMPUTE mode because there "
        "is not enough KV cache space. total_num_cumulative_preemption=51",
        texts.vllm_v0_status(20, 7, 9, 88.8),
    )
    figures, samples, lost = rows(
        log, FIGURES, SAMPLES, "SELECT amount_count FROM engine_event WHERE event = 'preempted'"
    )
    assert {name for name, _ in figures} >= {"total_memory", "weights", "non_torch", "activation_peak", "kv_memory"}
    assert samples[0][:3] == (7, 9, 0.888)
    assert lost == [(51,)]


def test_sglang_says_its_arguments_its_pool_and_each_batch(rows: Any) -> None:
    log = texts.lines(
        texts.sglang_arguments(
            mem_fraction_static=0.835, cuda_graph_max_bs=160, disable_radix_cache=True, quantization=None
        ),
        "[2026-03-11 13:53:21 TP0] Load weight end. elapsed=23.18 s, type=Glm4ForCausalLM, dtype=torch.bfloat16, "
        "avail mem=32.02 GB, "
        "mem usage=28.79 GB.",
        "[2026-03-11 13:53:23 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 159552, K size: 1.83 "
        "GB, V size: 1.83 GB",
        "[2026-03-11 13:53:32 TP0] Capture cuda graph end. Time elapsed: 8.04 s. mem usage=0.80 GB. avail "
        "mem=10.30 GB.",
        "[gpu=0] Decode batch. #running-req: 233, #token: 370959, token usage: 0.82, gen throughput (token/s): "
        "4594.01, #queue-req: 317",
        "[2026-09-17 11:37:05 TP0 EP0] Decode batch, #running-req: 4, #full token: 7936, full token usage: 0.31, "
        "#swa token: 512, "
        "swa token usage: 0.00, accept len: 3.50, accept rate: 0.50, cuda graph: True, gen throughput (token/s): "
        "110.00, #queue-req: 0",
        texts.sglang_prefill(3, 8192, 5, 2, cached=8192),
    )
    settings, figures, samples, prefix = rows(
        log,
        SETTINGS,
        FIGURES,
        SAMPLES,
        "SELECT prefix_hit_share, accept_length_count FROM engine_sample ORDER BY line_id",
    )
    assert dict(settings)["prefix_cache"] == "false"
    assert ("kv_tokens", 159552) in figures
    assert [sample[:3] for sample in samples] == [(233, 317, 0.82), (4, 0, 0.31), (5, 2, 0.41)]
    assert prefix == [(None, None), (None, 3.5), (0.5, None)]


def test_the_other_engines_say_their_state_too(rows: Any) -> None:
    log = texts.lines(
        texts.tensorrt_iteration(40, 8, 12.5, 9.5, active=20),
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 26.91 GiB for max tokens in paged KV cache (220480).",
        "2024-08-08T07:50:19.123456Z  INFO text_generation_launcher: Using attention flashinfer - Prefix caching true",
        "2024-08-08T07:50:20.123456Z  INFO text_generation_launcher: Cuda Graphs are enabled for sizes [32, 16, "
        "8, 4, 2, 1]",
        "[2025-01-01 12:00:00 DP0] Avg thr (in/out): 120.0 / 95.5 tokens/s, Server "
        "(succeeded/failed/routed/waiting): 9 / 0 / 4 / 3, "
        "Engine (running/waiting): 4 / 5, KV cache: 97.5%, Prefix cache hit rate: 12.0%, ",
        "2026-11-29T20:45:00.123Z INFO engine.status event=status running=3 waiting=2 kv_usage=0.500 "
        "prefix_hit_rate=0.250 "
        "prompt_tokens_per_s=1.0 output_tokens_per_s=2.0 preemptions=0 graph_share=1.000 drafted=0 accepted=0",
    )
    samples, engines = rows(log, SAMPLES, "SELECT engine FROM engine_sample ORDER BY line_id")
    assert [engine for (engine,) in engines] == ["tensorrt-llm", "lmdeploy", "engine"]
    assert [sample[:3] for sample in samples] == [(8, 12, 0.2), (4, 8, 0.975), (3, 2, 0.5)]


def test_time_is_told_in_every_form_and_a_month_that_is_none_has_none(rows: Any) -> None:
    second = [
        texts.vllm_status(0, 1),
        texts.sglang_decode(0, 1),
        "[09/13/2026-16:00:00] [TRT-LLM] [I] iter = 1, num_scheduled_requests: 1, host_step_time = 1.0ms, "
        "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 1}",
        texts.vllm_status(0, 1).replace("09-13", "13-45"),
    ]
    [samples] = rows(texts.lines(second), SAMPLES)
    times = [sample[3] for sample in samples]
    assert times[1] == times[2] == 1_789_315_200 * 10**9
    assert times[0] is not None
    assert times[3] is None


def test_counters_of_several_scrapes_are_told_apart(rows: Any) -> None:
    series = 'vllm:num_preemptions_total{{engine="1",model_name="/srv/private"}} {}\n'
    scrape = "# TYPE vllm:num_preemptions_total counter\n" + series
    [found] = rows(
        scrape.format("4.0") + scrape.format("1.0e1"), "SELECT scrape_id, replica_id, metric, reading FROM metric"
    )
    assert found == [(0, 1, "num_preemptions", 4.0), (1, 1, "num_preemptions", 10.0)]


def test_a_command_over_several_lines_gives_options_and_nothing_private(rows: Any) -> None:
    command = (
        "OMP_NUM_THREADS=4 HF_TOKEN=hf_secret vllm serve /srv/private/model --host 10.0.0.7 --api-key topsecret \\\n"
        '  --tensor-parallel-size=2 --max-num-seqs 16 \\\n  --speculative-config \'{"model": "/srv/draft", '
        '"num_speculative_tokens": 4}\''
        " && echo done --enforce-eager\n"
    )
    [settings] = rows(command, SETTINGS)
    assert dict(settings) == {"threads": "4", "tensor_parallel": "2", "running_limit": "16", "spec_tokens": "4"}


def test_a_printed_benchmark_result_is_a_row(rows: Any) -> None:
    printed = (
        "============ Serving Benchmark Result ============\nSuccessful requests:                     100       \n"
        "Output token throughput (tok/s):         1,287.30\nMean TTFT (ms):                          358.02\n"
        "Median TTFT (ms):                        296.90\nP99 TPOT (ms):                           21.80\n"
        "==================================================\n"
    )
    [found] = rows(printed, "SELECT completed_count, output_token_hz, ttft_p50_ns, tpot_p99_ns FROM bench_row")
    assert found == [(100, 1287.3, 296_900_000, 21_800_000)]


ADVERSARIAL = (
    "non-default args: {" + "'a': {" * 9000,
    "server_args=ServerArgs(" + "a=(" * 9000,
    "Decode batch, " + "#running-req: 1, " * 3000,
    "INFO Avg prompt throughput: " + "1" * 30000 + " Running: " + "9" * 20000,
    "vllm serve " + "--max-num-seqs " * 4000 + "'" * 999,
    "vllm:a{" + 'x="' * 9000 + "} 1",
    '{"Active Request Count":1,' + '"a b":1,' * 7000,
    "text_generation_launcher: Args { " + "a: Some(" * 7000,
    "Setting attention block size to " + "1" * 60000,
    "Using default MoE config" + " device_name=" * 5000,
    "event=status " + "a=" * 30000,
)


def test_hostile_lines_hide_no_line_behind_them(tmp_path: Path) -> None:
    path = tmp_path / "hostile.log"
    path.write_text("\n".join((*ADVERSARIAL, texts.vllm_status(0, 1))), encoding="utf-8")
    with doctor.load(path) as case:
        assert case.execute("SELECT count(*) FROM engine_sample WHERE kv_usage_share = 0.2").fetchall() == [(1,)]


def test_aliases_that_multiply_are_not_followed_without_end(rows: Any, tmp_path: Path) -> None:
    doubled = "".join(f"a{place}: &a{place} [*a{place - 1}, *a{place - 1}]\n" for place in range(1, 60))
    bomb = f"a0: &a0 [x, x]\n{doubled}max_num_seqs: 4\nkv_cache_config:\n  enable_block_reuse: true\n"
    path = tmp_path / "bomb.yaml"
    path.write_text(bomb, encoding="utf-8")
    with pytest.raises(doctor.DoctorError):
        doctor.load(path)


def test_a_model_configuration_gives_kv_bytes_parameters_and_weights(tmp_path: Path) -> None:
    llama = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(llama), encoding="utf-8")
    diagnosis = doctor.diagnose(path)
    assert diagnosis.evidence[0].kind == "engine-config"
    from doctor.case.derive import derive

    with doctor.load(path) as case:
        derive(case)
        found = case.execute("SELECT kv_token_bytes, parameter_count, weight_bytes FROM model_config").fetchall()
    [(kv_bytes, parameters, weights)] = found
    assert kv_bytes == 2 * 32 * 8 * 128 * 2
    assert abs(parameters / 8.03e9 - 1) < 0.01
    assert weights == 2 * parameters


def test_a_table_in_markdown_is_read_with_the_units_beside_its_numbers(rows: Any) -> None:
    table = (
        "our results:\n\n| **Policy** | Concurrency | Output tok/s | TPOT p99 |\n|---|:-:|--:|--:|\n"
        "| `KEEP_ALL` | 256 | 1,161.0 | 122 ms |\n| BRIM | 256 | 95.7 | 1.11 s |\n\nthanks\n"
    )
    [found] = rows(table, "SELECT condition, output_token_hz, tpot_p99_ns FROM bench_row ORDER BY row_id")
    assert found == [('{"policy": "keep_all"}', 1161.0, 122_000_000), ('{"policy": "brim"}', 95.7, 1_110_000_000)]


def test_python_that_makes_an_engine_gives_its_settings_and_advice_gives_none(rows: Any) -> None:
    code = (
        'from vllm import LLM\nllm = LLM(model="/srv/private", quantization="awq",\n    enforce_eager=True,\n'
        "    speculative_config={'method': 'ngram', 'num_speculative_tokens': 4})\n"
        "Use `eager` with `AutoModelForCausalLM.from_pretrained('<path>', attn_implementation='eager')`.\n"
    )
    [settings] = rows(code, SETTINGS)
    assert dict(settings) == {"quantisation": "awq", "eager": "true", "spec_method": "ngram", "spec_tokens": "4"}


@pytest.mark.parametrize("written", ["console of Windows", "emptied while it grew"])
def test_a_log_is_read_however_it_was_written(tmp_path: Path, written: str) -> None:
    log = texts.lines(texts.vllm_arguments(max_num_seqs=8), *(texts.vllm_status(at, 3, 4, 98.2) for at in range(3)))
    path = tmp_path / "server.log"
    path.write_bytes(
        log.replace("\n", "\r\n").encode("utf-16") if written == "console of Windows" else bytes(200_000) + log.encode()
    )
    with doctor.load(path) as case:
        assert case.execute("SELECT count(*) FROM engine_sample WHERE running_count = 3").fetchone() == (3,)


@pytest.mark.parametrize("told", ["61", "61%", "0.61"])
def test_a_share_is_one_however_it_is_written(rows: Any, told: str) -> None:
    table = f"mode,gpu_util,output_tokens_per_s\noffline,{told},900\nserver,1.0,450\n"
    assert rows(table, "SELECT round(device_busy_share, 6) FROM bench_row ORDER BY row_id") == [[(0.61,), (1.0,)]]


def test_lines_of_json_that_end_within_one_are_read_up_to_there(rows: Any) -> None:
    lines = '{"output_throughput": 1.5, "p99_tpot_ms": 3}\n{"output_throughput": 2.5}\n{"output_throughput": 1.5, "p9'
    assert rows(lines, "SELECT output_token_hz FROM bench_row ORDER BY row_id") == [[(1.5,), (2.5,)]]


def test_a_log_without_evidence_is_not_taken_for_json(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("[2026-09-13 16:00:02] nothing to see\n", encoding="utf-8")
    with pytest.raises(EvidenceError, match="is a text that is not known"), doctor.load(path):
        pass


@pytest.mark.parametrize("year", ["0026", "9026"])
def test_a_year_that_no_clock_shows_is_no_time(rows: Any, year: str) -> None:
    log = texts.sglang_decode(2, 9, 3, 0.9).replace("2026", year)
    assert rows(log, SAMPLES) == [[(9.0, 3.0, 0.9, None)]]
