"""The commands as a user runs them: files in, files and one JSON object out, one line and exit code 2 on bad input."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'engine'")

from engine.cli.main import main  # noqa: E402
from engine.conditions import CONDITIONS  # noqa: E402
from tests.support.engine_requests import MixedRequests, mixed_requests  # noqa: E402
from tests.support.tiny_models import make_model, save_model  # noqa: E402
from tests.support.tiny_tokenizer import save_tokenizer  # noqa: E402

ROOT = Path(__file__).parents[3]
SMALL = ["--dtype", "float32", "--device", "cpu", "--max-model-len", "128"]
FEW = ["--num-requests", "4", "--prompt-tokens", "4", "12", "--output-tokens", "3", "6"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MixedRequests]:
    model = make_model("llama", vocab_size=300)
    return save_tokenizer(save_model(model, tmp_path_factory.mktemp("llama"))), mixed_requests(model, 6)


@pytest.fixture(autouse=True)
def _quiet_log_afterwards() -> Any:
    import logging

    logger = logging.getLogger("engine")
    before = (logger.handlers, logger.level, logger.propagate)
    yield
    logger.handlers, logger.level, logger.propagate = before


def write_lines(path: Path, *objects: object) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in objects), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def request_lines(requests: MixedRequests) -> list[dict[str, Any]]:
    return [
        {"prompt_token_ids": list(prompt), "max_new_tokens": length, "ignore_eos": True, "temperature": 0}
        for prompt, length in zip(requests.prompts, requests.lengths, strict=True)
    ]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--batching", "single"],
        ["--batching", "static"],
        ["--batching", "dynamic"],
        ["--kv", "contiguous"],
        ["--kv", "concat"],
        ["--speculate", "ngram"],
        ["--micro-batch-size", "2"],
        ["--micro-batch-size", "none", "--num-blocks", "None", "--speculate", "none"],
        ["--condition", "micro-batch-small"],
        ["--condition", "micro-batch-small", "--cured"],
    ],
)
def test_generate_answers_a_file_in_its_order(
    llama: tuple[Path, MixedRequests], tmp_path: Path, options: list[str]
) -> None:
    source = write_lines(tmp_path / "in.jsonl", *request_lines(llama[1]))
    out = tmp_path / "out.jsonl"
    arguments = ["generate", "--model", str(llama[0]), "--requests", str(source), "--out", str(out), *SMALL, *options]
    assert main(arguments) == 0
    answers = read_lines(out)
    assert [tuple(answer["token_ids"]) for answer in answers] == llama[1].answers
    for answer in answers:
        assert set(answer) == {"token_ids", "text", "finish_reason", "ttft_s", "itl_s"}
        assert answer["finish_reason"] == "length"
        assert len(answer["itl_s"]) == len(answer["token_ids"]) - 1


def test_generate_takes_text_sampling_options_and_several_answers(
    llama: tuple[Path, MixedRequests], tmp_path: Path
) -> None:
    source = write_lines(
        tmp_path / "in.jsonl",
        {"prompt": "hello", "max_new_tokens": 4, "seed": 1, "n": 2, "logprobs": 1, "top_k": 20, "stop": ["zzzz"]},
        {"prompt": "hello", "max_new_tokens": 4, "temperature": 0},
    )
    out = tmp_path / "out.jsonl"
    assert main(["generate", "--model", str(llama[0]), "--requests", str(source), "--out", str(out), *SMALL]) == 0
    several, one = read_lines(out)
    assert len(several["answers"]) == 2
    assert several["answers"][0]["token_ids"] != several["answers"][1]["token_ids"]
    assert len(several["answers"][0]["logprobs"]) == len(several["answers"][0]["token_ids"])
    assert isinstance(one["text"], str)


def test_generate_writes_a_kineto_trace_of_a_window_of_steps(llama: tuple[Path, MixedRequests], tmp_path: Path) -> None:
    source = write_lines(
        tmp_path / "in.jsonl", {"prompt_token_ids": [5, 6], "max_new_tokens": 20, "temperature": 0, "ignore_eos": True}
    )
    trace = tmp_path / "trace.json.gz"
    arguments = ["--profile", "torch", "--trace", str(trace), "--profile-skip", "4", "--profile-steps", "6"]
    out = str(tmp_path / "out.jsonl")
    assert (
        main(["generate", "--model", str(llama[0]), "--requests", str(source), "--out", out, *SMALL, *arguments]) == 0
    )
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert sum(event.get("name") == "step" for event in events) == 6
    assert sum(event.get("name") == "layer" for event in events) == 12


def bench(llama: tuple[Path, MixedRequests], capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["bench", "--model", str(llama[0]), *SMALL, *FEW, *options]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_bench_prints_one_object_with_the_documented_fields(
    llama: tuple[Path, MixedRequests], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = bench(llama, capsys, "--repeat", "3")
    assert printed["schema"] == "engine.bench/1"
    assert set(printed) >= {
        "output_tokens",
        "prompt_tokens",
        "seconds",
        "output_tokens_per_s",
        "output_tokens_per_cpu_s",
        "ttft_s",
        "itl_s",
        "peak_memory_bytes",
        "counters",
    }
    assert set(printed["counters"]) >= {
        "syncs",
        "graph_replays",
        "kv_blocks_peak",
        "preemptions",
        "prefix_hit_tokens",
        "drafted",
        "accepted",
    }
    assert set(printed["ttft_s"]) == set(printed["itl_s"]) == {"p50", "p99"}
    assert len(printed["repeats"]) == 3
    assert printed["seconds"] == sorted(printed["repeats"])[1]
    assert printed["output_tokens_per_s"] == pytest.approx(printed["output_tokens"] / printed["seconds"])


def test_bench_reports_pieces_per_step(llama: tuple[Path, MixedRequests], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(llama, capsys)["derived"]["pieces_per_step"] == 1
    assert bench(llama, capsys, "--condition", "micro-batch-small")["derived"]["pieces_per_step"] > 2


def test_a_repeat_finds_no_prefix_of_the_run_before(
    llama: tuple[Path, MixedRequests], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = bench(llama, capsys, "--repeat", "2", "--prompt-tokens", "40", "60")
    assert printed["counters"]["prefix_hit_tokens"] == 0


def test_bench_runs_the_requests_of_a_file(
    llama: tuple[Path, MixedRequests], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "in.jsonl", *request_lines(llama[1]))
    printed = bench(llama, capsys, "--requests", str(source))
    assert printed["output_tokens"] == sum(llama[1].lengths)
    assert printed["prompt_tokens"] == sum(map(len, llama[1].prompts))


def test_requests_arrive_at_the_rate_that_is_asked_for(
    llama: tuple[Path, MixedRequests], capsys: pytest.CaptureFixture[str]
) -> None:
    at_once, spread = bench(llama, capsys), bench(llama, capsys, "--rate", "50")
    assert spread["counters"]["steps"] > at_once["counters"]["steps"]


def test_strategies_prints_the_table(llama: tuple[Path, MixedRequests], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "--model", str(llama[0]), "--draft", str(llama[0]), *SMALL, *FEW]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split("|")[1].strip() for line in lines[2:]]
    assert names == [
        "plain autoregressive",
        "static batching",
        "dynamic batching",
        "continuous batching",
        "speculative (n-gram)",
        "speculative (draft model)",
    ]
    assert all(re.search(r"MiB \| [\d.]+ tok/s \| [\d.]+ ms", line) for line in lines[2:])


def test_conditions_lists_every_condition_with_its_cure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conditions"]) == 0
    text = capsys.readouterr().out
    assert all(f"{name}: {condition.problem}" in text for name, condition in CONDITIONS.items())
    assert main(["conditions", "--json"]) == 0
    assert [item["name"] for item in json.loads(capsys.readouterr().out)] == list(CONDITIONS)


def test_the_options_that_conditions_prints_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conditions"]) == 0
    listed = re.findall(r"^ {4}(?:sick|cure): (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert len(listed) == 2 * len(CONDITIONS)
    for options in listed:
        typed = re.sub(r"--\S+ left to the engine", "", options).split()
        assert main(["bench", "--model", "nothing", *typed]) == 2
        assert "config.json does not exist" in capsys.readouterr().err, options


BAD = {
    "no such checkpoint": (["--model", "nothing"], "config.json does not exist"),
    "option out of range": (["--block-size", "0"], "block_size must be at least 1, not 0"),
    "unknown option": (["--blok-size", "3"], "No such option"),
    "value of another type": (["--block-size", "x"], "'x' is not a valid integer"),
    "neither value nor none": (["--micro-batch-size", "nine"], "'nine' is not a valid integer"),
    "unknown choice": (["--kv", "tape"], "'tape' is not one of 'paged', 'contiguous', 'concat'"),
    "unknown condition": (["--condition", "flu"], "unknown condition 'flu'"),
    "nsys without a GPU": (["--profile", "nsys"], "use --profile torch"),
    "no file of requests": (["--requests", "nothing.jsonl"], "nothing.jsonl cannot be read: No such file"),
    "no folder for answers": (["--out", "nothing/out.jsonl"], "its folder does not exist"),
    "options that contradict": (["--preemption", "swap"], "preemption=swap needs host_blocks"),
    "length beyond the model": (["--max-model-len", "999"], "beyond the 256 positions"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_give_one_line_and_exit_code_2(
    llama: tuple[Path, MixedRequests], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    options, message = BAD[name]
    source = write_lines(tmp_path / "in.jsonl", {"prompt_token_ids": [5], "max_new_tokens": 2})
    base = {"--model": str(llama[0]), "--requests": str(source), "--out": str(tmp_path / "out.jsonl")}
    base |= {"--device": "cpu", options[0]: options[1]}
    if name == "nsys without a GPU" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main(["generate", *(word for pair in base.items() for word in pair)]) == 2
    written = capsys.readouterr()
    assert message in written.err
    assert written.err.count("\n") == 1
    assert written.out == ""


LINES = {
    "{": "line 2: not JSON",
    "[1]": "line 2: a request is a JSON object, not list",
    "{}": "line 2: give either prompt or prompt_token_ids",
    '{"prompt": "a", "prompt_token_ids": [1]}': "line 2: give either prompt or prompt_token_ids",
    '{"prompt_token_ids": []}': "line 2: prompt_token_ids must be a list of integers, not empty",
    '{"prompt_token_ids": [1.5]}': "line 2: prompt_token_ids must be a list of integers",
    '{"prompt": 5}': "line 2: prompt must be a text",
    '{"prompt": "a", "temprature": 1}': "line 2: unknown sampling option 'temprature'",
    '{"prompt": "a", "top_p": 2}': "line 2: top_p must be a number in (0, 1]",
    '{"prompt_token_ids": [100000]}': "token id 100000 is outside the vocabulary",
}


@pytest.mark.parametrize("line", LINES)
def test_a_bad_line_is_named_and_nothing_is_written(
    llama: tuple[Path, MixedRequests], tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt_token_ids": [5]}\n' + line + "\n", encoding="utf-8")
    out = tmp_path / "out.jsonl"
    assert main(["generate", "--model", str(llama[0]), "--requests", str(source), "--out", str(out), *SMALL]) == 2
    assert LINES[line] in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_requests_is_refused(
    llama: tuple[Path, MixedRequests], tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(content, encoding="utf-8")
    assert main(["bench", "--model", str(llama[0]), "--requests", str(source), *SMALL]) == 2
    assert "holds no request" in capsys.readouterr().err


def test_help_needs_no_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None; from engine.cli.main import main; sys.exit(main(['bench', '-h']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert "--micro-batch-size" in done.stdout


def test_the_program_runs_as_a_module_and_talks_on_standard_error_only(llama: tuple[Path, MixedRequests]) -> None:
    command = [sys.executable, "-m", "engine", "bench", "--model", str(llama[0]), *SMALL, *FEW]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"] == "engine.bench/1"
