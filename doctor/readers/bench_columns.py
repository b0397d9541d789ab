"""What columns of benchmark tables are called, and what they are in the case."""

from __future__ import annotations

import re
from functools import lru_cache

_MS, _S = 10**6, 10**9

_EXACT: dict[str, tuple[str, float, int]] = {
    "batch": ("batch_count", 1, 0),
    "batchsize": ("batch_count", 1, 0),
    "bs": ("batch_count", 1, 0),
    "concurrency": ("concurrency_count", 1, 0),
    "concurrentrequests": ("concurrency_count", 1, 0),
    "maxconcurrency": ("concurrency_count", 1, 1),
    "users": ("concurrency_count", 1, 1),
    "requestrate": ("request_rate_hz", 1, 0),
    "qps": ("request_rate_hz", 1, 0),
    "rate": ("request_rate_hz", 1, 2),
    "reqrate": ("request_rate_hz", 1, 0),
    "arrivalrate": ("request_rate_hz", 1, 0),
    "requestspersoffered": ("request_rate_hz", 1, 0),
    "ratereqs": ("request_rate_hz", 1, 1),
    "offeredrate": ("request_rate_hz", 1, 0),
    "load": ("request_rate_hz", 1, 2),
    "loadreqs": ("request_rate_hz", 1, 1),
    "tp": ("tensor_parallel_count", 1, 0),
    "tpsize": ("tensor_parallel_count", 1, 0),
    "tensorparallel": ("tensor_parallel_count", 1, 0),
    "tensorparallelsize": ("tensor_parallel_count", 1, 0),
    "tensorparallelism": ("tensor_parallel_count", 1, 0),
    "pp": ("pipeline_parallel_count", 1, 0),
    "ppsize": ("pipeline_parallel_count", 1, 0),
    "pipelineparallelism": ("pipeline_parallel_count", 1, 0),
    "pipelineparallelsize": ("pipeline_parallel_count", 1, 0),
    "dp": ("data_parallel_count", 1, 0),
    "dpsize": ("data_parallel_count", 1, 0),
    "dataparallelism": ("data_parallel_count", 1, 0),
    "dataparallelsize": ("data_parallel_count", 1, 0),
    "replicas": ("data_parallel_count", 1, 1),
    "gpus": ("device_count", 1, 0),
    "numgpus": ("device_count", 1, 0),
    "gpucount": ("device_count", 1, 0),
    "devices": ("device_count", 1, 0),
    "inputlen": ("prompt_token_count", 1, 0),
    "isl": ("prompt_token_count", 1, 0),
    "randominputlen": ("prompt_token_count", 1, 0),
    "prompttokens": ("prompt_token_count", 1, 1),
    "context": ("prompt_token_count", 1, 1),
    "contextlength": ("prompt_token_count", 1, 1),
    "outputlen": ("output_token_count", 1, 0),
    "osl": ("output_token_count", 1, 0),
    "randomoutputlen": ("output_token_count", 1, 0),
    "completed": ("completed_count", 1, 0),
    "numprompts": ("completed_count", 1, 1),
    "numrequests": ("completed_count", 1, 1),
    "totalinputtokens": ("total_prompt", 1, 0),
    "totaloutputtokens": ("total_output", 1, 0),
    "requestthroughput": ("request_hz", 1, 0),
    "requestspersecond": ("request_hz", 1, 0),
    "reqs": ("request_hz", 1, 0),
    "rps": ("request_hz", 1, 1),
    "outputthroughput": ("output_token_hz", 1, 0),
    "outputtokenspers": ("output_token_hz", 1, 0),
    "outputtokenthroughput": ("output_token_hz", 1, 0),
    "outputtoks": ("output_token_hz", 1, 0),
    "generationthroughput": ("output_token_hz", 1, 1),
    "decodethroughput": ("output_token_hz", 1, 1),
    "throughput": ("output_token_hz", 1, 2),
    "tokens": ("output_token_hz", 1, 2),
    "toks": ("output_token_hz", 1, 2),
    "tps": ("output_token_hz", 1, 2),
    "tokenspersecond": ("output_token_hz", 1, 2),
    "tokenspers": ("output_token_hz", 1, 2),
    "tokenssec": ("output_token_hz", 1, 2),
    "toksec": ("output_token_hz", 1, 2),
    "totaltokenthroughput": ("total_token_hz", 1, 0),
    "totalthroughput": ("total_token_hz", 1, 1),
    "avglatency": ("latency_ns", _S, 1),
    "p90latency": ("latency_ns", _S, 2),
    "p90latencys": ("latency_ns", _S, 2),
    "latencyp90": ("latency_ns", _S, 2),
    "latencyp90s": ("latency_ns", _S, 2),
    "latencys": ("latency_ns", _S, 1),
    "latency": ("latency_ns", _S, 2),
    "elapsed": ("latency_ns", _S, 2),
    "elapseds": ("latency_ns", _S, 2),
    "elapsedtime": ("latency_ns", _S, 2),
    "walltime": ("latency_ns", _S, 2),
    "wallclock": ("latency_ns", _S, 2),
    "wallclocktime": ("latency_ns", _S, 2),
    "totaltime": ("latency_ns", _S, 2),
    "latencyms": ("latency_ns", _MS, 1),
    "steptimems": ("tpot_p50_ns", _MS, 2),
    "percentiles99": ("latency_p99_ns", _S, 1),
    "acceptlength": ("accept_length_count", 1, 0),
    "acceptancelength": ("accept_length_count", 1, 0),
    "meanacceptancelength": ("accept_length_count", 1, 0),
    "specdecodeacceptancelength": ("accept_length_count", 1, 0),
    "drafttokens": ("draft_token_count", 1, 0),
    "numspeculativetokens": ("draft_token_count", 1, 0),
    "spectokens": ("draft_token_count", 1, 0),
    "speculativetokens": ("draft_token_count", 1, 0),
    "preemptions": ("preemption_count", 1, 0),
    "preempted": ("preemption_count", 1, 0),
    "paused": ("preemption_count", 1, 0),
    "pausedrequests": ("preemption_count", 1, 0),
    "requestspaused": ("preemption_count", 1, 0),
    "numpaused": ("preemption_count", 1, 0),
    "pauses": ("preemption_count", 1, 1),
    "evictions": ("preemption_count", 1, 1),
    "evicted": ("preemption_count", 1, 1),
    "retracted": ("preemption_count", 1, 1),
    "retractions": ("preemption_count", 1, 1),
    "offeredrps": ("request_rate_hz", 1, 0),
    "targetrps": ("request_rate_hz", 1, 0),
    "targetqps": ("request_rate_hz", 1, 0),
    "counterspreemptions": ("preemption_count", 1, 0),
    "numpreemptions": ("preemption_count", 1, 0),
    "prefixlen": ("shared_prefix_count", 1, 0),
    "randomprefixlen": ("shared_prefix_count", 1, 0),
    "sharedprefixlen": ("shared_prefix_count", 1, 0),
    "sharedprefix": ("shared_prefix_count", 1, 0),
    "commonprefix": ("shared_prefix_count", 1, 0),
    "gpubusy": ("device_busy_share", 1, 0),
    "gpuutil": ("device_busy_share", 1, 0),
    "gpuutilization": ("device_busy_share", 1, 0),
    "gpuutilpercent": ("device_busy_share", 0.01, 0),
    "hitrate": ("hit_share", 1, 0),
    "prefixhitrate": ("hit_share", 1, 0),
    "cachehitrate": ("hit_share", 1, 0),
    "clientcpu": ("client_cpu_share", 1, 0),
    "clientcpushare": ("client_cpu_share", 1, 0),
    "clientcpupercent": ("client_cpu_share", 0.01, 0),
    "requestgoodput": ("goodput_hz", 1, 0),
    "goodput": ("goodput_hz", 1, 1),
    "slomissed": ("late_share", 1, 0),
    "lateshare": ("late_share", 1, 0),
}
_LATENCY = re.compile(
    r"(?:(mean|avg|average|median|p50|p90|p95|p99)_?)?(ttft|tpot|itl|e2el|e2e_latency|e2e|latency|response_time|completion_time|request_time)"
    r"_?(ms|sec|seconds|s)?(?:_?(mean|avg|average|p50|median|p90|p95|p99))?_?(ms|sec|seconds|s)?\Z"
)
_TOKENS = re.compile(
    r"(?:(output|out|gen|generation|decode|total|overall|system)_)?(?:token_)?(?:throughput_)?(?:tok|toks|token|tokens)_?(?:per_)?"
    r"(?:s|sec|second)\Z"
)
_REQUESTS = re.compile(
    r"(?:request_|achieved_)?(?:throughput_)?(?:(?:req|reqs|request|requests)_(?:per_)?(?:s|sec|second)|rps|qps)\Z"
)
_LATENCY_COLUMNS = {
    "ttft": ("ttft_p50_ns", "ttft_p99_ns"),
    "tpot": ("tpot_p50_ns", "tpot_p99_ns"),
    "itl": ("itl_p50_ns", "itl_p99_ns"),
    "e2el": ("latency_ns", "latency_p99_ns"),
    "e2e": ("latency_ns", "latency_p99_ns"),
    "e2e_latency": ("latency_ns", "latency_p99_ns"),
    "latency": ("latency_ns", "latency_p99_ns"),
    "response_time": ("latency_ns", "latency_p99_ns"),
    "completion_time": ("latency_ns", "latency_p99_ns"),
    "request_time": ("latency_ns", "latency_p99_ns"),
}
_WORDS = re.compile(
    r"(?:with_|using_)?(?:mode|condition|policy|scheduler(?:_?policy)?|backend|quant\w{0,20}|quantization|precision|dtype|kernel|guided\w{0,12}"
    r"|structured\w{0,12}|grammar|schema|graphs?|cuda_?graphs?|eager|prefix\w{0,12}|client|tool|engine|variant|config|label|kv(?!_?(?:cache_?)?(?:us|util|hit|occup|fill|free|full|share))\w{0,12}"
    r"|speculation|rout\w{0,8}|balanc\w{0,10}|order|split|transport|method|hardware|gpu|parallel\w{0,8}|weights?|profil\w{0,6}|nsys|recorder|model\w{0,8}|llm|dataset|workload|task|scenario"
    r"|api|interface|frontend|entry_?point|framework|version|release|commit|branch|table|flags?|args|options?|machine|node|host|server|cpu|system|device|card|setup"
    r"|(?:cpu_|weight_|kv_)?offload\w{0,8}(?:_gi?b)?|eplb\w{0,12}|(?:num_)?redundant_experts|(?:expert_)?(?:load_)?balancer|(?:sm_|gpu_|graphics_)?clocks?(?:_(?:speed|limit|mhz|ghz))?)\Z"
)
_BRACKETS = re.compile(r"\(([^()]{1,40})\)")


@lru_cache(maxsize=4096)
def column_of(name: str) -> tuple[str, float, int] | None:
    """Column of `bench_row`, the factor to its unit, and how good a source it is (0 is best); None where unknown.

    `GPUs (TP)` is what stands in its brackets, or else before them.
    """
    brackets = _BRACKETS.search(name[:80])
    whole = _column_of(name)
    if whole is not None or brackets is None or brackets[1] == "ns":  # sums of a profiler, no benchmark's
        return whole
    return _column_of(brackets[1]) or _column_of(_BRACKETS.sub("", name[:80]))


def _column_of(name: str) -> tuple[str, float, int] | None:
    plain = name.strip().lower()[:80]
    bare = re.sub(r"[^a-z0-9]", "", plain)
    if bare in _EXACT:
        return _EXACT[bare]
    spelled = re.sub(r"_{2,}", "_", re.sub(r"[^a-z0-9]", "_", plain)).strip("_")
    tokens = _TOKENS.fullmatch(spelled)
    if tokens is not None:
        return ("total_token_hz" if tokens[1] in {"total", "overall"} else "output_token_hz", 1, 1)
    if _REQUESTS.fullmatch(spelled) is not None:
        return "request_hz", 1, 1
    found = _LATENCY.fullmatch(spelled)
    if found is None:
        return None
    kind = found[1] or found[4] or ""
    unit = found[3] or found[5] or ("ms" if found[2] in {"ttft", "tpot", "itl"} else "s")
    middle, tail = _LATENCY_COLUMNS[found[2]]
    return (
        tail if kind == "p99" else middle,
        _MS if unit == "ms" else _S,
        0 if kind in {"p99", "median", "p50"} else 2 if kind in {"p90", "p95"} else 1,
    )


def word_column(name: str) -> str | None:
    """The name of a column in words that says what else was varied; None for any other."""
    spelled = re.sub(r"_{2,}", "_", re.sub(r"[^a-z0-9]", "_", name.strip().lower()[:40])).strip("_")
    return spelled.removeprefix("with_").removeprefix("using_") if _WORDS.fullmatch(spelled) else None
