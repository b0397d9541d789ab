r"""Which texts of a PyTorch trace are its structure, and what is left of the others.

Nothing stays because it looks harmless: a text stays where its key is known and it is one of the words that the
profiler writes there. Names of kernels, operators, ranges and Python functions stay without the folders of their paths.
Whatever stands below a key that is not known goes altogether: programs add metadata of their own to a trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from doctor.formats.kineto.categories import KINDS, LEFT_OUT
from doctor.formats.private_paths import FRAME_FOLDERS, executable_name
from doctor.formats.recorder_words import recorder_message_in_place
from doctor.redact.masking import Hide, hide_all, hide_folders

_NUMBERS = rb"(?:0x[0-9a-fA-F]++|[\s\d+.eE,\[\]()-]++|True|False|None|true|false|nan|inf)*"
_TYPE = (
    rb"(?:c10::)?(?:float|double|half|(?:long|short|unsigned|signed)?\s?(?:long|int|char|short)?|bool|void|nullptr|"
    rb"Int|Long|Bool|Double|Float|Half|BFloat16|Byte|Char|Short|String|Str|Device|Scalar|Tensor|None|Optional|Generator|"
    rb"Layout|Storage|Stream|Dict|Tuple|GenericDict|Future|u?int(?:8|16|32|64)_t|q?u?int\d{1,2}|Float8_?\w{0,9}|"
    rb"complex<[a-z]{1,8}>|Complex(?:Float|Double|Half)|(?:Generic|Scalar|Tensor|Int|Double|Bool|Optional)List)"
)
_GROUP = (
    rb"(?:default|pg|tp|pp|dp|ep|cp|sp|dcp|pcp|fsdp|ddp|hsdp|mesh|group|world|undefined|tensor|pipeline|data|model|"
    rb"parallel|expert|experts|context|sequence|attention|attn|moe|replica|replicate|shard|embedding|position|global|"
    rb"local|intra|inter|prefill|decode|eplb|cpu|gpu|cuda|gloo|nccl|rccl|mpi|ucc|xccl|hccl|device|rank|[\s\d_:,.-])*"
)
_COLLECTIVE = (
    rb"(?:all|reduce|gather|scatter|broadcast|send|recv|barrier|to|into|tensor|base|coalesced|single|wait|init|v|oop|"
    rb"nccl|pointwise|[_:-])*"
)
_COPY = (
    rb"(?:Memcpy |Memset )?\(?[A-Za-z]{1,8}(?:to|To| -> )[A-Za-z]{1,8}\)?(?: \([A-Za-z ]{3,9} -> [A-Za-z ]{3,9}\))?"
    rb"|Dispatch (?:Kernel|Task)|\d*"
)
_CATEGORY = "|".join(
    map(
        re.escape, ("", "cpu_instant_event", "Memory", "mtia_runtime", "xpu_runtime", "glow_runtime", *KINDS, *LEFT_OUT)
    )
).encode()
_THREAD = rb"(?:Spans|Traces|(?:(?:stream|thread) )?-?\d+ ?|(?:Trace )?PyTorch Profiler(?: \(\d+\))?|0x[0-9a-fA-F]+)?"

STRUCTURE: Mapping[bytes, bytes] = {
    b"ph": rb"\w?",
    b"s": rb"\w?",
    b"bp": rb"\w?",
    b"cat": _CATEGORY,
    b"pid": _THREAD,
    b"tid": _THREAD,
    b"id": rb"(?:0x)?[0-9a-fA-F]*",
    b"trace_id": rb"(?:0x)?[0-9a-fA-F]*",
    b"displayTimeUnit": rb"ms|ns",
    b"labels": rb"(?:CPU|GPU(?: \d+)?)?",
    b"Trace name": rb"PyTorch Profiler",
    b"Input type": _TYPE,
    b"Output type": _TYPE,
    b"dtype": _TYPE,
    b"kind": _COPY,
    b"cuda_sync_kind": rb"(?:(?:Stream|Event|Context|Device|Wait|Sync|Synchronize|Query)\s?)*",
    b"kernel_backend": rb"triton|cutlass|cuda|cpp|",
    b"Collective name": _COLLECTIVE,
    b"Process Group Name": _GROUP,
    b"Process Group Description": _GROUP,
    b"pg_name": _GROUP,
    b"pg_desc": _GROUP,
    b"backend": _GROUP,
    b"backend_config": _GROUP,
    b"nccl_version": _NUMBERS,
}
"""What may stand under a key; anything else there is overwritten. A key that is not here may hold numbers only."""

SPOKEN = (b"name", b"kernel", b"Call stack", b"kernel_file")
"""Keys of names that are the evidence itself."""
LOGS = (b"INFO", b"WARNING", b"ERROR")
"""Keys of the profiler's own lines."""
OPENED_KEYS = frozenset({b"traceEvents", b"args", b"deviceProperties", b"distributedInfo", b"pg_config"})
"""Keys of lists and objects whose own keys are known."""
EVENT_KEYS = (b"ph", b"cat", b"pid", b"tid", b"id", b"s", b"bp", b"displayTimeUnit", b"trace_id")
ARGUMENT_KEYS = (*(key for key in STRUCTURE if key not in EVENT_KEYS), b"Concrete Inputs", b"src", b"dst", b"bytes")
TEXT_LISTS = frozenset({*ARGUMENT_KEYS, *LOGS})
PUBLIC_KEY = re.compile(rb"[A-Za-z_][\w %./()-]{0,47}")

_THREAD_NAME = re.compile(rb"(?:thread|stream|Device) -?\d+ ?(?:\([\w.:+-]{0,40}\))? ?")
_FRAME = re.compile(FRAME_FOLDERS.encode())
_PUBLIC_FOLDERS = frozenset(
    b"torch torchvision torchaudio torch_tensorrt triton vllm sglang sgl_kernel transformers tensorrt_llm lmdeploy "
    b"text_generation_server accelerate deepspeed megatron apex flash_attn flashinfer xformers bitsandbytes peft "
    b"diffusers nvtx numpy asyncio concurrent multiprocessing threading importlib json logging ray uvicorn fastapi "
    b"engine".split()
)
_DISTINCT_NAMES = 65_536
_COMPILED = {key: re.compile(pattern) for key, pattern in STRUCTURE.items()}
_UNKNOWN = re.compile(_NUMBERS)


def treatment(key: bytes, *, is_argument: bool = False) -> Hide:
    """What is done to a text under a key: of an event's arguments, or of the event and the trace itself."""
    if key == b"name" and is_argument:
        return thread_or_program
    if key in SPOKEN:
        return spoken
    if key in LOGS:
        return recorder_message_in_place
    pattern = _COMPILED.get(key, _UNKNOWN)
    return lambda text: text if pattern.fullmatch(text) else hide_all(text)


@lru_cache(_DISTINCT_NAMES)
def spoken(text: bytes) -> bytes:
    """A name that stays, without folders: those of relative paths too, unless a public package lies in them."""
    return hide_folders(_FRAME.sub(_hidden_folders, text))


def thread_or_program(text: bytes) -> bytes:
    """`thread 12 (python3)` as it is, of anything else the base name of the executable."""
    if _THREAD_NAME.fullmatch(text):
        return text
    return (executable_name(text.decode("utf-8", "replace")) or "").encode()


def _hidden_folders(match: re.Match[bytes]) -> bytes:
    first = match[0].split(b"/", 1)[0]
    return match[0] if first in _PUBLIC_FOLDERS else re.sub(rb"[^\\/]", b"x", match[0])


def structural_texts(keys: Iterable[bytes]) -> tuple[bytes, ...]:
    """Patterns of `"key": "text"` and `"key": ["text", ...]` whose texts all stay, one for each key."""
    return tuple(
        rb'"' + re.escape(key) + rb'"\s*+:\s*+(?:"(?:%b)"|\[(?:\s*+"(?:%b)"\s*+,?)*\s*+\])' % (pattern, pattern)
        for key in keys
        for pattern in (STRUCTURE.get(key, _NUMBERS),)
    )
