"""What a file is that no reader knows, and what to do with it: one clause for a message."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from doctor.readers.evidence_file import EvidenceFile

_ACCEPTED = (
    "give a trace (.nsys-rep, its SQLite export, PyTorch), a log with an engine's lines, an out-of-memory text, a"
    " memory snapshot, metrics, a configuration or a table of a benchmark"
)


@dataclass(frozen=True)
class _Signature:
    """A kind of file: how its first bytes look, what it is, what to do."""

    matches: Callable[[bytes], bool]
    what: str
    advice: str


def _starts(*magics: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(magics)


def _at(offset: int, magic: bytes) -> Callable[[bytes], bool]:
    return lambda head: head[offset : offset + len(magic)] == magic


def _is_nvprof(head: bytes) -> bool:
    return head.startswith(b"SQLite format 3\x00") and b"StringTable" in head and b"CUPTI_ACTIVITY_KIND" in head


def _is_pickle(head: bytes) -> bool:
    return len(head) > 2 and head[0] == 0x80 and head[1] in range(2, 6)


def _is_json(head: bytes) -> bool:
    return (
        re.match(
            rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*[\"}]|\[\s*(?:[\[\]{\"]|-?\d[\d.eE+-]*\s*(?:,|\]\s*(?:[,\]]|\Z))))", head
        )
        is not None
    )


def _is_text(head: bytes) -> bool:
    if b"\x00" in head:
        return False
    try:
        head[:-4].decode()  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def _is_header_of_query(head: bytes) -> bool:
    """A single line of names that `nvidia-smi --query-...` prints."""
    lines = [line for line in head.splitlines() if line.strip()]
    names = [cell.strip() for cell in lines[0].split(b",")] if lines else []
    known = sum(_QUERIED.match(name) is not None for name in names)
    return len(lines) == 1 and len(names) > 1 and known >= len(names) / 2 and known > 0


def _holds(*words: bytes) -> Callable[[bytes], bool]:
    return lambda head: any(word in head for word in words)


_STATS_HEADERS = (
    b"Time (%),Total Time (ns)",
    b"Time(%),Total Time (ns)",
    b"Time(%)  Total Time (ns)",
    b"Time (%)  Total Time (ns)",
    b'"Time (%)","Total Time (ns)"',
    b"| Time (%) | Total Time (ns)",
)
_NVPROF_WORDS = (b"NVPROF is profiling", b"GPU activities:", b"==  Profiling result:")
_QUERIED = re.compile(
    rb"(?:memory|utilization|clocks|power|temperature|pcie|ecc|fan|remapped_rows|clocks_\w{1,20}|gpu)[._]\S|pid|pstate|name"
    rb"|index|timestamp|process_name|used_memory|used_gpu_memory|uuid|driver_version|count|serial"
)

_NO_DRIVER = (
    b"NVIDIA-SMI has failed because", b"Failed to initialize NVML", b"couldn't communicate with the NVIDIA driver",
)  # fmt: skip
_EMPTY_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*\}|\[\s*(?:\{\s*\}\s*)?\])\s*\Z")

_SIGNATURES = (
    _Signature(
        _holds(*_NO_DRIVER),
        "is a message of nvidia-smi that it cannot reach the NVIDIA driver: it tells nothing of a device",
        "load or reinstall the driver (dmesg and `lsmod | grep nvidia` say why it is missing), or query beside the GPU",
    ),
    _Signature(
        lambda head: _EMPTY_JSON.match(head) is not None,
        "is JSON without anything in it: what was to write its result ended before",
        "run the benchmark again and look at what it printed",
    ),
    _Signature(
        _is_header_of_query,
        "is the header of an nvidia-smi table without a row, which holds nothing to judge",
        "query again while the run works: the driver printed no device or process",
    ),
    _Signature(
        _holds(
            b"_kern_sum)",
            b"_api_sum)",
            b"_time_sum)",
            b"osrt_sum)",
            b"Executing 'cuda",
            *_STATS_HEADERS,
            *_NVPROF_WORDS,
        ),
        "holds the title or the headings of a profile's sums, and no row of them",
        "run `nsys stats` on a report that holds CUDA work, or give the report itself (.nsys-rep)",
    ),
    _Signature(
        _starts(b"NVR\x00", b"NVR"),
        "is an Nsight Compute report (.ncu-rep), which holds single kernels and no time-line",
        "record with `nsys profile` or the PyTorch profiler",
    ),
    _Signature(
        _starts(b"QDSTRM", b"QDTEXT"),
        "is an unfinished recording of nsys (.qdstrm)",
        "import it with the nsys that recorded it: `nsys export` or its QdstrmImporter",
    ),
    _Signature(_starts(b"PK\x03\x04", b"PK\x05\x06"), "is a zip archive", "unpack it and give the trace inside"),
    _Signature(_at(257, b"ustar"), "is a tar archive", "unpack it and give the trace inside"),
    _Signature(
        _starts(b"7z\xbc\xaf\x27\x1c", b"BZh", b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18"),
        "is compressed in a way that is not read directly",
        "unpack it; gzip and zstd are read as they are",
    ),
    _Signature(
        _is_pickle, "is a Python pickle, which could run anything and is not opened", "give the trace or log beside it"
    ),
    _Signature(_is_nvprof, "is a profile of nvprof", "record again with `nsys profile`: nvprof is no longer supported"),
    _Signature(
        _starts(b"SQLite format 3\x00"),
        "is an SQLite database, but no export of Nsight Systems",
        "export the report with `nsys export --type sqlite`, or give the .nsys-rep itself",
    ),
    _Signature(_at(8, b"DUCK"), "is a DuckDB file", "give a saved case by its own name, unpacked"),
    _Signature(
        _starts(b"PAR1", b"ARROW1"),
        "is one table of a columnar export",
        "give the whole folder that nsys exported",
    ),
    _Signature(_starts(b"\x89HDF"), "is an HDF5 file", "export the report with `nsys export --type sqlite`"),
    _Signature(_starts(b"\x89PNG", b"\xff\xd8\xff", b"GIF8"), "is an image", _ACCEPTED),
    _Signature(_starts(b"%PDF"), "is a PDF document", _ACCEPTED),
    _Signature(_starts(b"\x7fELF", b"MZ"), "is a program or library", _ACCEPTED),
    _Signature(_starts(b"GGUF"), "is a model file (GGUF)", _ACCEPTED),
    _Signature(
        lambda head: re.match(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype html|html)", head, re.IGNORECASE) is not None,
        "is an HTML page, perhaps a login or error page saved instead of the file",
        "download the file again",
    ),
    _Signature(
        lambda head: head.startswith(b"version https://git-lfs.github.com/spec"),
        "is a Git LFS pointer, not the file itself",
        "fetch it with `git lfs pull`",
    ),
    _Signature(_is_json, "is JSON, but no trace (`traceEvents`), configuration or benchmark", _ACCEPTED),
    _Signature(_is_text, "is a text that is not known as evidence", _ACCEPTED),
)


def what_it_is(file: EvidenceFile, head: bytes) -> str:
    """Say what a file is and what to do: `is a zip archive: unpack it and give the trace inside`.

    Args:
        file: the file.
        head: its first bytes after decompression.
    """
    wrapped = "" if file.compression == "none" else f" (inside {file.compression})"
    if not head:
        return f"is empty{wrapped}: the profiler wrote nothing, record again"
    for signature in _SIGNATURES:
        if signature.matches(head):
            return f"{signature.what}{wrapped}: {signature.advice}"
    return f"is no evidence that is known here{wrapped}: {_ACCEPTED}"
