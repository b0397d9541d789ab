from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from doctor.case.batch import TableBatch
from doctor.readers.text.document import TextDocumentReader
from tests.support import oom_texts

MIB, GIB = 2**20, 2**30
SITE = "/usr/local/lib/python3.12/site-packages"
FULL = oom_texts.of_today(
    tried="1.00 GiB",
    total="79.15 GiB",
    free="200.00 MiB",
    own="78.90 GiB",
    allocated="77.00 GiB",
    unallocated="1.00 GiB",
)


@pytest.fixture
def told(tmp_path: Path) -> Any:
    """Rows of one table that a text gives."""

    def rows(text: str, table: str = "oom_event") -> list[dict[str, Any]]:
        path = tmp_path / "text"
        path.write_text(text)
        parts = TextDocumentReader().read(path, lambda done, total: None)
        return [
            row
            for part in parts
            if isinstance(part, TableBatch) and part.table == table
            for row in part.rows.to_pylist()
        ]

    return rows


GENERATIONS: dict[str, tuple[str, dict[str, object]]] = {
    "2018": (
        oom_texts.of_2018(
            tried="50.00 MiB", total="10.92 GiB", allocated="9.85 GiB", free="20.69 MiB", cached="302.00 KiB", gpu=3
        ),
        {"text_form": "cached", "device_id": 3, "tried_bytes": 50 * MIB, "reserved_unallocated_bytes": 302 * 1024},
    ),
    "2020": (
        oom_texts.of_2020(
            tried="2.00 MiB", total="31.75 GiB", allocated="5.22 GiB", free="0 bytes", reserved="5.24 GiB"
        ),
        {"text_form": "reserved", "free_bytes": 0, "reserved_bytes": round(5.24 * GIB)},
    ),
    "early 2023, misspelt": (
        FULL.replace("capacity of", "capacty of"),
        {"text_form": "process", "total_bytes": round(79.15 * GIB), "own_process_bytes": round(78.9 * GIB)},
    ),
    "private pools": (
        oom_texts.of_today(
            tried="512 bytes",
            total="47.53 GiB",
            free="896.00 KiB",
            others={1686436: "47.51 GiB"},
            allocated="47.00 GiB",
            pools="46.22 GiB",
            unallocated="149.10 MiB",
        ),
        {
            "tried_bytes": 512,
            "private_pool_bytes": round(46.22 * GIB),
            "reserved_unallocated_bytes": round(149.1 * MIB),
        },
    ),
    "nothing on what is unallocated": (
        oom_texts.of_today(
            tried="1.50 TiB",
            total="22.30 GiB",
            free="50.00 MiB",
            allocated="20.94 GiB",
            pools="22.00 MiB",
            unallocated=None,
        ),
        {"tried_bytes": round(1.5 * 2**40), "allocated_bytes": round(20.94 * GIB)},
    ),
    "a limit of the process": (
        FULL.replace("is free.", "is free. 40.00 GiB allowed;"),
        {"allowed_bytes": 40 * GIB},
    ),
    "ROCm": (FULL.replace("CUDA out", "HIP out"), {"tried_bytes": GIB, "text_form": "process"}),
    "nonsense of Windows": (
        FULL.replace("78.90 GiB memory", "17179869184.00 GiB memory"),
        {"tried_bytes": GIB, "total_bytes": round(79.15 * GIB)},
    ),
}


@pytest.mark.parametrize("name", GENERATIONS)
def test_reads_the_figures_of_every_generation(name: str, told: Any) -> None:
    text, figures = GENERATIONS[name]
    (event,) = told(text)
    assert {key: event[key] for key in figures} == figures
    if name == "nonsense of Windows":
        assert event.get("own_process_bytes") is None


def test_a_message_broken_over_lines_reads_the_same(told: Any) -> None:
    words = FULL.split(" ")
    broken = "\n".join(" ".join(words[at : at + 7]) for at in range(0, len(words), 7))
    (whole,) = told(FULL)
    (event,) = told(broken)
    assert event == whole


def test_a_message_that_a_terminal_has_cut_within_words_reads_the_same(told: Any) -> None:
    message = FULL.removesuffix("\n")
    broken = "\n".join(message[at : at + 97] for at in range(0, len(message), 97))
    (event,) = told(broken)
    assert event == told(FULL)[0]


def test_every_listed_process_is_kept(told: Any) -> None:
    text = oom_texts.of_today(
        tried="1.71 GiB",
        total="22.03 GiB",
        free="0 bytes",
        others={11: "248.00 MiB", 12: "248.00 MiB", 13: "20.28 GiB"},
        allocated="19.55 GiB",
        unallocated="1.00 MiB",
    )
    listed = told(text, "oom_process")
    assert [(row["pid"], row["memory_bytes"]) for row in listed] == [
        (11, 248 * MIB),
        (12, 248 * MIB),
        (13, round(20.28 * GIB)),
    ]


DRIVERS: Mapping[str, int | None] = {
    "RuntimeError: CUDA error: out of memory": None,
    "[TM][ERROR] CUDA runtime error: out of memory /lmdeploy/src/turbomind/utils/allocator.h:246": None,
    "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mCudaStream->get()): out of memory": None,
    "[TRT] [E] Requested amount of GPU memory (17179869184 bytes) could not be allocated.": 16 * GIB,
    "ggml_cuda: allocating 8192.00 MiB on device 1: cudaMalloc failed: out of memory": 8 * GIB,
    "jaxlib: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1048576 bytes.": MIB,
}


@pytest.mark.parametrize("line", DRIVERS)
def test_reads_the_drivers_bare_words(line: str, told: Any) -> None:
    (event,) = told(line + "\n")
    assert event["text_form"] == "driver"
    assert event.get("tried_bytes") == DRIVERS[line]


HARMLESS = (
    "kernel: Out of memory: Killed process 4242 (python3) total-vm:1000kB, anon-rss:1000kB\n",
    "    if 'out of memory' in str(error):\n",
    "Lower the batch size if you run out of memory.\n",
)


@pytest.mark.parametrize("line", HARMLESS)
def test_words_about_memory_are_no_failure(line: str, told: Any) -> None:
    assert told(line + FULL)[0]["line_id"] == line.count("\n") + 1
    assert len(told(line + FULL)) == 1


def test_an_allocation_that_is_tried_again_is_no_failure(told: Any) -> None:
    text = (
        "[rank0]:[W922 05:15:28] memory allocation failed with OOM on device 0 while\n"
        "trying to allocate 3630170112 bytes (free: 202833920, total: 25250627584).\n"
    )
    assert told(text) == []
    (retry,) = told(text, "allocation_retry")
    assert (retry["tried_bytes"], retry["free_bytes"], retry["total_bytes"]) == (3630170112, 202833920, 25250627584)


def frames(*named: tuple[str, str, str]) -> str:
    """A traceback through files of a package."""
    return oom_texts.traceback(*((f"{SITE}/{file}", function, code) for file, function, code in named))


RUNNER = "vllm/v1/worker/gpu_model_runner.py"
VLLM_LAYER = ("vllm/model_executor/models/llama.py", "forward", "self.mlp(x)")
PHASES: dict[str, tuple[str, str, str | None]] = {
    "capture": (frames((RUNNER, "capture_model", "self._dummy_run(size)")), "capture", "graph"),
    "load": (frames(("vllm/model_loader/base_loader.py", "load_model", "model = init()")), "load", "weights"),
    "load by transformers": (
        frames(
            ("transformers/modeling_utils.py", "from_pretrained", "x"),
            ("torch/nn/modules/module.py", "_apply", "fn(p)"),
        ),
        "load",
        "weights",
    ),
    "pool": (frames((RUNNER, "_allocate_kv_cache_tensors", "torch.zeros(size)")), "kv_pool", "cache_reserve"),
    "profiling run": (frames((RUNNER, "profile_run", "self._dummy_run()"), VLLM_LAYER), "profile", "feed_forward"),
    "sampler": (
        frames(("vllm/v1/sample/sampler.py", "compute_logprobs", "logits.log_softmax(-1)")),
        "sampler",
        "logits",
    ),
    "logits of transformers": (
        frames(
            ("transformers/generation/utils.py", "_sample", "self(**x)"),
            ("transformers/models/llama.py", "forward", "logits = logits.float()"),
        ),
        "sampler",
        "logits",
    ),
    "prefill of SGLang": (
        frames(
            ("sglang/srt/model_executor/model_runner.py", "forward_extend", "x"),
            ("sglang/srt/layers/attention/triton.py", "forward", "o = q"),
        ),
        "prefill",
        "attention",
    ),
    "layer within a compiled graph's wrapper": (
        frames(("vllm/compilation/cuda_graph.py", "__call__", "return self.runnable()"), VLLM_LAYER),
        "prefill",
        "feed_forward",
    ),
    "growing cache": (
        frames(("transformers/cache_utils.py", "update", "self.keys = torch.cat([self.keys, new], dim=-2)")),
        "",
        "cache_growth",
    ),
}


@pytest.mark.parametrize("name", PHASES)
def test_frames_say_what_the_process_was_doing(name: str, told: Any) -> None:
    text, phase, hot_spot = PHASES[name]
    (event,) = told(text + FULL)
    assert (event.get("phase") or "", event.get("hot_spot")) == (phase, hot_spot)
    assert SITE not in event["stack"]


def test_a_traceback_of_a_notebook_is_read(told: Any) -> None:
    text = (
        "File /opt/conda/site-packages/transformers/generation/utils.py:1474, in GenerationMixin.generate(self)\n"
        "-> 1474 return self.greedy_search(\n\n"
        "File /opt/conda/lib/python3.10/site-packages/transformers/models/llama.py:820, in forward(self)\n"
        "--> 820 logits = logits.float()\n\n"
    )
    (event,) = told(text + FULL)
    assert (event["framework"], event["hot_spot"]) == ("transformers", "logits")


def test_an_old_traceback_says_nothing_of_a_later_failure(told: Any) -> None:
    (event,) = told(PHASES["capture"][0] + "KeyError: 'x'\n" + "INFO all is well\n" * 20 + FULL)
    assert event.get("phase") is None


LINES = {
    "load": "INFO [gpu_model_runner.py:1] Starting to load model /models/m...\n",
    "capture": "[2025-05-01 10:00:00 TP0] Capture cuda graph begin. This can take up to several minutes.\n",
    None: "[2025-05-01 10:00:00 TP0] Capture cuda graph begin.\n[2025-05-01 10:00:09 TP0] Capture cuda graph end.\n",
}


@pytest.mark.parametrize("phase", LINES)
def test_without_frames_the_engines_last_line_says_it(phase: str | None, told: Any) -> None:
    (event,) = told(LINES[phase] + FULL)
    assert event.get("phase") == phase


def test_the_engines_word_on_its_warm_up_belongs_to_the_failure_before(told: Any) -> None:
    (event,) = told(
        FULL + "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.\n"
    )
    assert (event["phase"], event["hot_spot"], event["tried_bytes"]) == ("sampler", "logits", GIB)


def test_the_prefix_of_a_line_names_process_and_rank(told: Any) -> None:
    (event,) = told("(Worker_TP3 pid=4711) ERROR 11-20 20:00:00 [x.py:1] " + FULL)
    assert (event["pid"], event["rank"]) == (4711, 3)


REFUSALS: dict[str, dict[str, object]] = {
    "(EngineCore pid=253) ValueError: Free memory on device cuda:0 (12.18/23.56 GiB) on startup is less than desired"
    " GPU memory utilization (0.92, 21.67 GiB). Decrease GPU memory utilization or reduce GPU memory used by other"
    " processes.": {
        "refusal": "startup_free",
        "pid": 253,
        "device_id": 0,
        "free_bytes": round(12.18 * GIB),
        "utilization_share": 0.92,
    },
    "ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is needed,"
    " which is larger than the available KV cache memory (1.25 GiB). Based on the available memory, the estimated"
    " maximum model length is 5120. Try increasing `gpu_memory_utilization`": {
        "refusal": "model_length",
        "model_length_count": 40960,
        "needed_bytes": 10 * GIB,
        "available_bytes": round(1.25 * GIB),
        "fitting_length_count": 5120,
    },
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when": {
        "refusal": "no_kv_room",
        "framework": "vllm",
    },
    "AssertionError: Error in memory profiling. Initial free memory 58.23 GiB,\n  current free memory 59.34 GiB.": {
        "refusal": "free_grew",
        "later_free_bytes": round(59.34 * GIB),
    },
    "RuntimeError: The memory capacity is unbalanced. min_per_gpu_memory=16.28, local_gpu_memory=46.81": {
        "refusal": "unbalanced",
        "free_bytes": round(16.28 * GIB),
    },
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.": {
        "refusal": "no_kv_room",
        "framework": "sglang",
    },
    "RuntimeError: Prefill out of memory. Try to lower your batch size.": {"refusal": "pool_full"},
    "ValueError: invalid literal for int() with base 10: 'MIG-0e6c5d8f-1111'": {"refusal": "mig_id"},
}


@pytest.mark.parametrize(
    "text", REFUSALS, ids=[str(figures["refusal"]) + str(place) for place, figures in enumerate(REFUSALS.values())]
)
def test_reads_what_engines_refuse_for(text: str, told: Any) -> None:
    (refusal,) = told(text + "\n", "memory_refusal")
    assert {key: refusal[key] for key in REFUSALS[text]} == REFUSALS[text]


def test_the_source_line_of_a_refusal_is_none(told: Any) -> None:
    code = '    msg = "Not enough memory. Please try to increase --mem-fraction-static."\n'
    assert told(code + FULL, "memory_refusal") == []


ADVERSARIAL = (
    "CUDA out of memory. Tried to allocate " + "1" * 60_000,
    "CUDA out of memory. Tried to allocate " + "1," * 30_000 + " GiB",
    "CUDA out of memory. Tried to allocate" + " " * 60_000 + "1 GiB",
    "CUDA out of memory. Tried to allocate 1 GiB. " + "Process 1 has 1.00 GiB memory in use. " * 1_500,
    'File "' + "/a" * 30_000 + '", line 1, in f',
    "File /" + "a" * 60_000,
    "(" * 60_000 + "a pid=1) CUDA out of memory",
    "Free memory on device (" + "1" * 30_000 + "/" + "1" * 30_000,
    "max seq len (" + "9" * 60_000,
    "The memory capacity is unbalanced " + "local_gpu_memory=" * 3_000,
)


@pytest.mark.parametrize("line", ADVERSARIAL, ids=range(len(ADVERSARIAL)))
def test_lines_made_to_be_slow_are_read_in_one_pass(line: str, told: Any) -> None:
    assert told((line + "\n") * 20 + FULL)[-1]["tried_bytes"] == GIB


def test_reads_the_summary_of_the_allocator(told: Any) -> None:
    text = """\
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 1                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 2            |        cudaMalloc retries: 14        |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |  10240 MiB |  11000 MiB |  90000 MiB |  79760 MiB |
|       from large pool |  10000 MiB |  10700 MiB |  80000 MiB |  70000 MiB |
| GPU reserved memory   |  20480 MiB |  20480 MiB |  20480 MiB |      0 B   |
| Non-releasable memory |   4096 MiB |   4096 MiB |  70000 MiB |  65904 MiB |
|===========================================================================|
"""
    (summary,) = told(text, "allocator_summary")
    assert summary == {
        "device_id": 1,
        "oom_count": 2,
        "retry_count": 14,
        "allocated_bytes": 10 * GIB,
        "reserved_bytes": 20 * GIB,
        "unreleasable_bytes": 4 * GIB,
    }


def test_a_traceback_within_a_line_of_json_is_read(told: Any) -> None:
    line = json.dumps({"log": PHASES["sampler"][0] + FULL, "stream": "stderr"})
    (event,) = told(line + "\n")
    assert (event["phase"], event["tried_bytes"], event["total_bytes"]) == ("sampler", GIB, round(79.15 * GIB))


SERIES = {
    "named": "".join(f"step {number}: allocated={number + 1}.50 GiB reserved=20 GiB\n" for number in range(9)),
    "bytes": "".join(f"torch.cuda.memory_allocated(): {(2 * number + 3) * 2**29}\n" for number in range(9)),
    "table": "step,allocated_gib,loss\n" + "".join(f"{number},{number + 1}.5,0.1\n" for number in range(9)),
}


@pytest.mark.parametrize("name", SERIES)
def test_reads_levels_that_a_program_prints(name: str, told: Any) -> None:
    levels = told(SERIES[name], "allocator_level")
    assert [row["allocated_bytes"] / GIB for row in levels] == [number + 1.5 for number in range(9)]


def test_a_line_or_two_about_memory_are_no_series(told: Any) -> None:
    assert told("step 1: allocated=1.50 GiB\n" * 3 + FULL, "allocator_level") == []


ASYNC = """\
torch.OutOfMemoryError: Allocation on device 2 would exceed allowed memory. (out of memory)
Currently allocated     : 9.25 GiB
Requested               : 3.50 GiB
Device limit            : 23.50 GiB
Free (according to CUDA): 12.00 MiB
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB
"""


def test_reads_the_list_of_the_asynchronous_allocator(told: Any) -> None:
    [event] = told(ASYNC)
    assert (event["text_form"], event["device_id"], event["tried_bytes"]) == ("async", 2, 3.5 * GIB)
    assert (event["allocated_bytes"], event["total_bytes"]) == (9.25 * GIB, 23.5 * GIB)
    assert event.get("allowed_bytes") is None


def test_reads_that_list_from_within_a_quoted_string(told: Any) -> None:
    quoted = "panicked at 'Unable to warmup model: Generation(\"" + ASYNC.strip().replace("\n", "\\n") + "\")'"
    [event] = told(quoted)
    assert (event["tried_bytes"], event["phase"]) == (3.5 * GIB, "profile")


def test_reads_words_that_a_line_break_glued_together(told: Any) -> None:
    text = oom_texts.of_2020(
        tried="2.00 GiB", total="10.76 GiB", allocated="8.00 GiB", free="64.00 MiB", reserved="9.00 GiB"
    )
    [event] = told(text.replace("already allocated", "alreadyallocated").replace("by PyTorch", "by Pytorch"))
    assert (event["allocated_bytes"], event["reserved_bytes"]) == (8 * GIB, 9 * GIB)


def test_a_server_without_room_for_its_prompts_refuses(told: Any) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/usr/src/server/text_generation_server/models/flash_causal_lm.py", line 1, in warmup\n'
        "    raise RuntimeError(\n"
        "RuntimeError: Not enough memory to handle 8192 prefill tokens. You need to decrease"
        " `--max-batch-prefill-tokens`\n"
    )
    [refusal] = told(text, "memory_refusal")
    assert (refusal["refusal"], refusal["model_length_count"], refusal["framework"]) == ("prefill_tokens", 8192, "tgi")


def test_a_slice_is_told_only_beside_a_refusal(told: Any) -> None:
    slice_line = "GPU: NVIDIA H200 MIG 2g.35gb\n"
    failed = 'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "c10/cuda/CUDACachingAllocator.cpp":963\n'
    assert [row["refusal"] for row in told(slice_line + failed, "memory_refusal")] == ["nvml_assert", "mig_named"]
    assert told(slice_line + FULL, "memory_refusal")[0]["refusal"] == "mig_named"


@pytest.mark.parametrize("prefix", ["> ", "vllm-1  | ", "2026-03-04T05:06:0{}.123456789Z ", "(Worker pid=77) "])
def test_reads_a_broken_message_behind_what_logs_put_before_each_line(told: Any, prefix: str) -> None:
    lines = (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB (GPU 0; 8.00 GiB total capacity; 7.10 GiB",
        "already allocated; 0 bytes free; 7.50 GiB reserved in",
        "total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb",
    )
    [event] = told("".join(f"{prefix.format(place)}{line}\n" for place, line in enumerate(lines)))
    assert event["allocated_bytes"] == round(7.1 * GIB)
    assert event["reserved_bytes"] == round(7.5 * GIB)
