"""Messages of engines that refuse to start, or to take a batch, for want of memory.

The figures come out by column of the table `memory_refusal`.
"""

from __future__ import annotations

import re

from doctor.readers.text.oom_message import size_of

_NUMBER = r"(-?\d{1,12}(?:\.\d{1,6})?)"
_GAP = r"\s{1,4}"
_FREE = re.compile(
    rf"Free memory on device\s?(?:cuda:(\d{{1,3}})\s)?\(?\s?{_NUMBER}\s?/\s?{_NUMBER}{_GAP}GiB\)\s?(?:on startup)?"
    rf"{_GAP}is less than desired{_GAP}GPU memory{_GAP}utilization\s{{0,4}}"
    rf"\(\s?(\d\.\d{{1,4}}|\d),{_GAP}{_NUMBER}{_GAP}GiB\)"
)
_LENGTH = re.compile(
    rf"max seq len\s{{0,4}}\((\d{{1,12}})\)\s{{1,4}}is larger than the{_GAP}maximum number of tokens that{_GAP}"
    rf"can be{_GAP}stored in{_GAP}KV cache{_GAP}\((\d{{1,12}})\)"
)
_NEEDED = re.compile(rf"max seq len\s{{0,4}}\((\d{{1,12}})\),\s{{0,4}}\(?{_NUMBER}{_GAP}Gi?B{_GAP}KV cache is needed")
_AVAILABLE = re.compile(rf"KV cache{_GAP}memory\s{{0,4}}\({_NUMBER}(?:[–-]{_NUMBER})?{_GAP}Gi?B")
_FITTING = re.compile(r"stimated maximum model length is\s{1,4}(\d{1,12})")
_GREW = re.compile(
    rf"Error in memory profiling\.\s{{0,4}}Initial free memory{_GAP}{_NUMBER}(?:{_GAP}GiB)?,\s{{0,4}}"
    rf"current free memory{_GAP}{_NUMBER}({_GAP}GiB)?"
)
_UNBALANCED = re.compile(r"The memory capacity is unbalanced")
_SEEN = re.compile(
    r"(?:pre_model_load_memory|min_per_gpu_memory|min_available_device_memory)\s{0,4}=\s{0,4}(\d{1,6}(?:\.\d{1,20})?)"
)
_LOCAL = re.compile(r"local_(?:gpu|device)_memory\s{0,4}=\s{0,4}(\d{1,6}(?:\.\d{1,20})?)")
_NO_SHARE = re.compile(r"Not enough memory[.,;]? {0,2}Please try (?:to increase|increasing) --mem-fraction-static")
_NO_BLOCKS = re.compile(r"No enough gpu memory for (?:kv cache|runtime)", re.IGNORECASE)
_NO_SEQUENCE = re.compile(r"Impossible to fit in any sequence in kv ?cache", re.IGNORECASE)
_EXECUTOR = "Executor creation failed due to insufficient GPU memory"
_COMPONENT = re.compile(r"component could not be created:\s{1,4}([\w ()-]{1,60}?)\s{1,4}(?:Total|Free) GPU")
_EXECUTOR_TOTAL = re.compile(rf"Total GPU memory \(GiB\):\s{{1,4}}{_NUMBER}")
_EXECUTOR_FREE = re.compile(rf"Free GPU memory before component creation attempt \(GiB\):\s{{1,4}}{_NUMBER}")
_POOL_FULL = re.compile(r"\b(?:Prefill|Decode) out of memory\. Try to lower your batch size")
_MIG = re.compile(
    r"invalid literal for int\(\) with base 10: '?b?'?MIG-|Invalid device id: '?MIG-"
    r"|MIG-[0-9a-fA-F/-]{4,80}'? (?:is not|not found)"
)
_PREFILL = re.compile(r"Not enough memory to handle(?: (\d{1,9}) prefill tokens)?")
_NVML = re.compile(r"NVML_SUCCESS == (?:r|DriverAPI)[^\n]{0,80}ASSERT FAILED")
_SLICE = re.compile(
    r"\bMIG\b.{0,40}\b\d{1,2}g\.\d{1,3}gb\b|\b\d{1,2}g\.\d{1,3}gb\b.{0,40}\bMIG\b|CUDA_VISIBLE_DEVICES=[\"']?MIG-",
    re.IGNORECASE,
)
"""Words by which a text says that its device is a slice: `NVIDIA H100 80GB HBM3 MIG 2g.20gb`."""
SLICE_CLUE = "MIG"

_BARE = (
    ("no_kv_room", "sglang", _NO_SHARE, 'msg = "'),
    ("no_kv_room", "lmdeploy", _NO_BLOCKS, "raise "),
    ("no_kv_room", "tensorrt-llm", _NO_SEQUENCE, "assert "),
    ("pool_full", "sglang", _POOL_FULL, 'f"'),
    ("mig_id", None, _MIG, "\n"),
    ("nvml_assert", None, _NVML, "\n"),
)
"""Messages without figures: refusal, engine, form, and what only the source line that raises it has."""

CLUES = (
    "Free memory on device",
    "max seq len",
    "No available memory for the cache blocks",
    "Error in memory profiling",
    "The memory capacity is unbalanced",
    "Not enough memory",
    "No enough gpu memory for",
    "Impossible to fit in any sequence",
    _EXECUTOR,
    "out of memory. Try to lower your batch size",
    "'MIG-",
    "NVML_SUCCESS",
)
GAPPED = (_EXECUTOR,)
"""Messages with empty lines within."""
WRAPPED = (
    "Free memory on device",
    "max seq len",
    "Error in memory profiling",
    "The memory capacity is unbalanced",
    *GAPPED,
)
"""Messages long enough to be broken over several lines."""
CONTINUED = re.compile(
    r"GiB|free memory|utilization|KV cache|tokens that|stored in|maximum model length|memory_utilization|processes"
    r"|_memory|could not be created"
)

Figures = dict[str, int | float | str | None]


def names_slice(text: str) -> bool:
    """Tell whether a line says that a device is a MIG slice."""
    return _SLICE.search(text) is not None


def parse(text: str) -> Figures | None:
    """Read a message; None where the text holds none of them, or only the source line that would raise it.

    Args:
        text: the message on one line, at most a few KiB.
    """
    for reading in (_startup_free, _model_length, _free_grew, _unbalanced, _prefill_tokens, _executor, _bare):
        figures = reading(text)
        if figures is not None:
            return figures
    return None


def _startup_free(text: str) -> Figures | None:
    found = _FREE.search(text)
    if found is None:
        return None
    device, free, total, share, requested = found.groups()
    return {
        "refusal": "startup_free",
        "device_id": None if device is None else int(device),
        "free_bytes": _gib(free),
        "total_bytes": _gib(total),
        "utilization_share": float(share),
        "requested_bytes": _gib(requested),
        "framework": "vllm",
    }


def _model_length(text: str) -> Figures | None:
    stored, needed = _LENGTH.search(text), _NEEDED.search(text)
    if stored is None and needed is None:
        return None
    figures: Figures = {"refusal": "model_length", "framework": "vllm"}
    if stored is not None:
        figures |= {"model_length_count": int(stored[1]), "kv_token_count": int(stored[2])}
    if needed is not None:
        available, fitting = _AVAILABLE.search(text), _FITTING.search(text)
        figures |= {
            "model_length_count": int(needed[1]),
            "needed_bytes": _gib(needed[2]),
            "available_bytes": _gib(available[1]) if available else None,
            "fitting_length_count": int(fitting[1]) if fitting else None,
        }
    return figures


def _free_grew(text: str) -> Figures | None:
    found = _GREW.search(text)
    if found is None:
        return None
    first, later, is_gib = found.groups()
    scale = _gib if is_gib else _whole
    return {"refusal": "free_grew", "free_bytes": scale(first), "later_free_bytes": scale(later), "framework": "vllm"}


def _unbalanced(text: str) -> Figures | None:
    if _UNBALANCED.search(text) is None:
        return None
    seen, local = _SEEN.search(text), _LOCAL.search(text)
    if seen is None and 'f"' in text:
        return None
    return {
        "refusal": "unbalanced",
        "free_bytes": _gib(seen[1]) if seen else None,
        "later_free_bytes": _gib(local[1]) if local else None,
        "framework": "sglang",
    }


def _prefill_tokens(text: str) -> Figures | None:
    found = _PREFILL.search(text)
    if found is None or 'f"' in text:
        return None
    tokens = int(found[1]) if found[1] else None
    return {"refusal": "prefill_tokens", "model_length_count": tokens, "framework": "tgi"}


def _executor(text: str) -> Figures | None:
    """TensorRT-LLM names the part that it could not make, and what was free before."""
    if _EXECUTOR not in text or 'f"' in text:
        return None
    component, total, free = _COMPONENT.search(text), _EXECUTOR_TOTAL.search(text), _EXECUTOR_FREE.search(text)
    is_cache = component is None or "KV cache" in component[1]
    return {
        "refusal": "no_kv_room" if is_cache else "component",
        "free_bytes": _gib(free[1]) if free else None,
        "total_bytes": _gib(total[1]) if total else None,
        "framework": "tensorrt-llm",
    }


def _bare(text: str) -> Figures | None:
    if "No available memory for the cache blocks" in text and ("Error: " in text or "Try increasing" in text):
        return {"refusal": "no_kv_room", "framework": "vllm"}
    for refusal, framework, form, source in _BARE:
        if form.search(text) and source not in text:
            return {"refusal": refusal} if framework is None else {"refusal": refusal, "framework": framework}
    return None


def _gib(number: str) -> int | None:
    return size_of(number.lstrip("-"), "GiB") if not number.startswith("-") else -(size_of(number[1:], "GiB") or 0)


def _whole(number: str) -> int | None:
    return size_of(number.partition(".")[0], "B")
