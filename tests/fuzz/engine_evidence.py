"""Damages what engines say and reads it: `python -m tests.fuzz.engine_evidence [COUNT] [SEED]`.

Inputs are logs, metrics, command lines, configurations, benchmark tables and requests: cut, flipped, shuffled, glued
together, repeated, nested and blown up. Each goes through the door of the program: told by content and read; one in
fifty is diagnosed to its end. Allowed are rows that fit the case, and an `EvidenceError` of one line. Anything else
(another exception, more than a few seconds, more rows than there can be) is printed with the seed that makes it again,
and the exit code is 1.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path

from doctor.case import schema
from doctor.case.batch import SourceFacts, TableBatch
from doctor.errors import EvidenceError
from doctor.readers import registry
from tests.fuzz.watch import DIAGNOSED_ONE_IN, Watch, diagnosed_to_the_end
from tests.support import engine_texts as texts

MOST_ROWS = 200_000

_LINES = (
    texts.vllm_status(1, 3, 4, 98.2, preemptions=2),
    texts.vllm_v0_status(1, 3, 4),
    texts.vllm_speculation(1, 2.2, 90, 30, 3),
    texts.vllm_arguments(speculative_config={"method": "ngram", "num_speculative_tokens": 3}, enforce_eager=True),
    "(EngineCore_DP0 pid=9) INFO 11-29 12:00:00 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: "
    "model='a/b', "
    "speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, quantization=None, "
    "compilation_config={'mode': <M.X: 3>, "
    "'cudagraph_capture_sizes': [1, 2, 4], 'max_cudagraph_capture_size': 4}",
    "INFO 11-29 12:00:00 worker.py:2] total_gpu_memory (79.11GiB) x gpu_memory_utilization (0.90) = 71.20GiB",
    "INFO model weights take 14.99GiB; non_torch_memory takes -0.15GiB; PyTorch activation peak memory takes "
    "1.23GiB; the rest of "
    "the memory reserved for KV Cache is 54.84GiB.",
    "INFO GPU KV cache size: 439,392 tokens, Maximum concurrency for 131,072 tokens per request: 3.35x",
    "INFO Graph capturing finished in 20 secs, took 0.52 GiB",
    "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV "
    "cache (16816).",
    "WARNING Sequence group 7 is preempted by PreemptionMode.SWAP mode because. total_num_cumulative_preemption=51",
    texts.sglang_decode(2, 9, 3, 0.9, graph=False),
    texts.sglang_prefill(3, 33000, 50, 9),
    texts.sglang_retracted(4),
    texts.sglang_arguments(cuda_graph_max_bs=32, kv_cache_dtype="auto", disable_radix_cache=True),
    "[2026-01-01 00:00:00 TP0] KV Cache is allocated. #tokens: 159552, K size: 1.83 GB, V size: 1.83 GB",
    "[2026-01-01 00:00:00] max_total_num_tokens=410324, chunked_prefill_size=8192, max_running_requests=4096, "
    "context_len=131072",
    texts.tensorrt_iteration(7, 8, 12.5, 9.5),
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 26.91 GiB for max tokens in paged KV cache (220480).",
    '[TensorRT-LLM][INFO] {"Active Request Count":249,"Scheduled Requests per Iteration":6,"Max KV cache '
    'blocks":1448,"Used KV cache '
    'blocks":1400,"Paused Requests":2}',
    "2024-08-08T07:50:19.1Z  INFO text_generation_launcher: Args {",
    "    num_shard: Some(",
    "        2,",
    "    ),",
    "}",
    "[2025-01-01 12:00:00 DP0] Avg thr (in/out): 1.0 / 2.0 tokens/s, Server (succeeded/failed/routed/waiting): 1 "
    "/ 0 / 2 / 3, Engine "
    "(running/waiting): 4 / 5, KV cache: 99.0%, ",
    "2026-11-29T20:45:00.123Z INFO engine.status event=status running=3 waiting=2 kv_usage=0.5 drafted=4 accepted=1",
    "vllm serve org/name --enforce-eager -tp 2 \\",
    "  --speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 4}'",
    'vllm:prefix_cache_queries_total{engine="0",model_name="x"} 801405.0',
    'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.5"} 8.0',
    "sglang:num_queue_reqs{} NaN",
    'vllm:cache_config_info{block_size="784",enable_prefix_caching="True",num_gpu_blocks="7000"} 1.0',
    'trtllm_kv_cache_utilization{model_name="x"} 0.99',
    'nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 210',
    'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m",version="1"} 0.998',
    '[{"iterLatencyMS": 130.5, "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 9}, "numQueuedRequests": 2}]',
    "lmdeploy==0.0.14", "session_len = 8200", "num_layer = 32", "[TM][INFO] [LlamaCacheManager] max_entry_count = 48",
    ">>> model.dtype", "torch.float32", ">>> model.get_memory_footprint()", "51400000000",
    "============ Serving Benchmark Result ============",
    "Output token throughput (tok/s):         287.30",
    "==================================================",
    "torch._dynamo hit config.recompile_limit (8)",
    "", "\x1b[1;36m", "é\ufffd", "9" * 400, "{" * 300, "=" * 300, "," * 300, "'", '"', "\\", "#running-req: ",
    "%s" * 40,
)  # fmt: skip
_DOCUMENTS = (
    json.dumps({
        "architectures": ["X"], "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100,
        "quantization_config": {"quant_method": "awq", "bits": 4},
        "text_config": {"num_hidden_layers": 2, "hidden_size": 8},
    }),
    "kv_cache_config:\n  free_gpu_memory_fraction: 0.9\ncuda_graph_config: null\nmax_batch_size: 32\n",
    "services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: ['--enforce-eager', '--max-num-seqs', '4']\n",
    "[llama]\nsession_len = 8200\nmax_batch_size = 10\nnum_layer = 32\nkv_head_num = 32\nsize_per_head = 128\n",
    'parameters: {\n  key: "batch_scheduler_policy"\n  value: {\n    string_value: "max_utilization"\n  }\n}\n',
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nmax_num_seqs: *c\nkv_cache_config: {<<: *c}\n",
    "batch,TP,tok/s,TPOT p99 (ms),policy\n1,1,100,20,a\n1,2,150,15,b\n",
    json.dumps({"avg_latency": 1.2, "latencies": [1.1], "percentiles": {"50": 1.2, "99": 2.0}}),
    '{"output_throughput": 1.5, "p99_tpot_ms": 3, "completed": 4}\n{"output_throughput": 2.5}\n',
    '{"prompt_token_ids": [1, 2, 3]}\n{"messages": [{"role": "user", "content": "x"}]}\n',
    json.dumps({"schema": "engine.bench/1", "output_tokens_per_s": 5, "ttft_s": {"p50": 0.1},
                "counters": {"preemptions": 3}}),
)  # fmt: skip


def text_of(dice: random.Random) -> bytes:
    """Lines of all engines in any order, whole and damaged."""
    chosen = [damaged(dice.choice(_LINES).encode(), dice) if dice.random() < 0.6 else dice.choice(_LINES).encode()
              for _ in range(dice.choice((1, 3, 30, 120)))]  # fmt: skip
    return dice.choice((b"\n", b"\r\n", b"\n", b" ")).join(chosen)


def damaged(raw: bytes, dice: random.Random) -> bytes:
    """Bytes cut, flipped, doubled, swapped or put in."""
    out = bytearray(raw)
    for _ in range(dice.choice((1, 1, 2, 6))):
        at = dice.randrange(len(out)) if out else 0
        kind = dice.randrange(6)
        if kind == 0:
            del out[at:]
        elif kind == 1 and out:
            out[at] ^= 1 << dice.randrange(8)
        elif kind == 2:
            out[at:at] = dice.choice(
                (b"-", b"9" * 30, b"(", b"{'a': ", b"[" * 60, b"&x *x ", b",", b'"', b": ", b"1e999")
            )
        elif kind == 3:
            noise = dice.randbytes(dice.choice((1, 9, 200)))  # most texts hold no control characters, and are read then
            out[at:at] = noise if dice.random() < 0.1 else bytes(max(byte, 32) for byte in noise)
        elif kind == 4:
            out += out[:at] * dice.choice((1, 1, 20))
        else:
            del out[at : at + dice.choice((1, 4, 40))]
    return bytes(out[: 512 * 1024])


def read_through_the_door(path: Path) -> str:
    """Tell the format of the content and read it; what came of it, in a word.

    Raises:
        AssertionError: rows that no case has room for, or a message of several lines.
    """
    rows = 0
    try:
        for part in registry.read(path):
            if isinstance(part, TableBatch):
                assert part.table in schema.metadata.tables, part.table
                rows += part.rows.num_rows
                assert rows <= MOST_ROWS, rows
            else:
                assert isinstance(part, SourceFacts)
    except EvidenceError as error:
        words = error.message
    else:
        return "read" if rows else "read, no rows"
    assert len(words.splitlines()) == 1, words
    return "refused"


def main(arguments: list[str]) -> int:
    """Run so many inputs from a seed; 1 where one of them fails."""
    count = int(arguments[0]) if arguments else 10_000
    first = int(arguments[1]) if len(arguments) > 1 else 0
    watch = Watch("engine evidence")
    with tempfile.TemporaryDirectory() as name:
        for seed in range(first, first + count):
            dice = random.Random(seed)
            content = text_of(dice) if dice.random() < 0.6 else damaged(dice.choice(_DOCUMENTS).encode(), dice)
            path = Path(name) / "evidence"
            path.write_bytes(content or b" ")
            with watch.over(seed):
                watch.outcomes[read_through_the_door(path)] += 1
                if seed % DIAGNOSED_ONE_IN == 0:
                    watch.outcomes[diagnosed_to_the_end(path)] += 1
    sys.stdout.write(watch.report())
    return int(watch.num_failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
