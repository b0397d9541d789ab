"""Out-of-memory messages as PyTorch of different years prints them, from sizes as people quote them."""

from __future__ import annotations

from collections.abc import Mapping

_ADVICE = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management "
    " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


def of_2018(*, tried: str, total: str, allocated: str, free: str, cached: str, gpu: int = 0) -> str:
    """`cached` is what the allocator holds and no tensor uses."""
    return (
        f"RuntimeError: CUDA out of memory. Tried to allocate {tried} (GPU {gpu}; {total} total capacity;"
        f" {allocated} already allocated; {free} free; {cached} cached)\n"
    )


def of_2020(*, tried: str, total: str, allocated: str, free: str, reserved: str, gpu: int = 0) -> str:
    """`reserved` counts tensors too."""
    return (
        f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried} (GPU {gpu};"
        f" {total} total capacity; {allocated} already allocated; {free} free; {reserved} reserved in total by PyTorch)"
        " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation. "
        " See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF\n"
    )


def of_today(
    *,
    tried: str,
    total: str,
    free: str,
    allocated: str,
    unallocated: str | None,
    own: str | None = None,
    others: Mapping[int, str] | None = None,
    pools: str | None = None,
    gpu: int = 0,
) -> str:
    """Since 2023; `own` is what the driver counts for `this process`, `others` what it counts for listed pids."""
    named = "".join(f" Process {pid} has {size} memory in use." for pid, size in (others or {}).items())
    mine = "" if own is None else f" Including non-PyTorch memory, this process has {own} memory in use."
    graphs = "" if pools is None else f", with {pools} allocated in private pools (e.g., CUDA Graphs)"
    unused = "" if unallocated is None else f", and {unallocated} is reserved by PyTorch but unallocated"
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU {gpu} has a total capacity of"
        f" {total} of which {free} is free.{named}{mine} Of the allocated memory {allocated} is allocated by"
        f" PyTorch{graphs}{unused}.{_ADVICE}\n"
    )


def traceback(*frames: tuple[str, str, str]) -> str:
    """A traceback, outermost frame first: file, function, source line of each."""
    lines = "".join(f'  File "{file}", line 100, in {function}\n    {code}\n' for file, function, code in frames)
    return f"Traceback (most recent call last):\n{lines}"
