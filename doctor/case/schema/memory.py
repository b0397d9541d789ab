"""Memory as its owners tell it: out-of-memory texts, refusals to start, snapshots of PyTorch's allocator."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Table

from doctor.case.schema.columns import flag, interned, metadata, of_source, real, small, text_column, whole


def _said_at() -> tuple[Column[Any], ...]:
    """Where in the text, and who said it."""
    return (
        whole("line_id", "place in the text"),
        text_column("framework", "vllm, sglang, tensorrt-llm, transformers, lmdeploy, pytorch; NULL unknown"),
        small("device_id", "index as the failing process counts its devices"),
        whole("pid", "process that wrote the line, where its prefix says so"),
        small("rank", "rank that wrote the line, where its prefix says so"),
    )


def _in_pool() -> tuple[Column[int], ...]:
    """Where a segment or block lies."""
    return (
        small("device_id", "device of the recorded process"),
        whole("segment_id", "number of the segment within its source, from 0; NULL where the segment is gone"),
        whole("address", "where it starts"),
    )


oom_event = Table(
    "oom_event",
    metadata,
    of_source(),
    whole("oom_event_id", "number of the failure within its source, from 0"),
    *_said_at(),
    text_column(
        "text_form",
        "cached: of 2018; reserved: says what is reserved in total; process: names processes; driver: the driver's own "
        "words; heap: the allocator of another library; guard: a server's own limit; async: the "
        "allocator of the driver's own pools; snapshot: no text, the last failure in a snapshot's history",
    ),
    whole("tried_bytes", "what was asked for; NULL where not said"),
    whole("total_bytes", "size of the device as the failing process sees it"),
    whole("free_bytes", "free on the device"),
    whole("allocated_bytes", "in tensors of the failing process"),
    whole("reserved_bytes", "held by its allocator, tensors included"),
    whole("reserved_unallocated_bytes", "held by its allocator and in no tensor"),
    whole("private_pool_bytes", "of what is allocated, in private pools such as those of CUDA graphs"),
    whole("own_process_bytes", "held by the failing process in all, as the driver counts"),
    whole("allowed_bytes", "limit set for the process; NULL without"),
    text_column(
        "phase",
        "load, kv_pool, profile, capture, prefill, decode, sampler, training: what the process was doing; NULL unknown",
    ),
    text_column(
        "hot_spot",
        "logits, attention, feed_forward, cache_growth, cache_reserve, weights, graph: what the failing line makes; "
        "NULL unknown",
    ),
    flag("is_serving", "the server had said that it was ready"),
    interned("stack", "Python frames, innermost first: function (file:line) < ..."),
    comment="Allocations that failed, each once for every time the text tells of it",
)

oom_process = Table(
    "oom_process",
    metadata,
    of_source(),
    whole("oom_event_id", "failure that lists the process"),
    whole("pid", "process id, of whichever pid namespace the driver speaks of"),
    whole("memory_bytes", "memory in use by it"),
    comment="Processes that an out-of-memory text lists as `Process N has ...`",
)

memory_refusal = Table(
    "memory_refusal",
    metadata,
    of_source(),
    *_said_at(),
    text_column(
        "refusal",
        "startup_free: less is free than the engine may take; model_length: the longest sequence does not fit; "
        "no_kv_room: nothing is left for the KV cache; component: no room for another part of the engine; "
        "free_grew: somebody freed memory while it was measured; "
        "unbalanced: ranks see different free memory; pool_full: a batch found no room in the KV pool; "
        "prefill_tokens: the largest batch of prompts does not fit; "
        "mig_id: the name of a MIG slice was not understood; nvml_assert: the allocator could not ask the driver; "
        "mig_named: no refusal, but a line that says that the device is a MIG slice",
    ),
    whole("free_bytes", "free when it was measured"),
    whole("later_free_bytes", "free when it was measured again"),
    whole("total_bytes", "size of the device as the engine sees it"),
    whole("requested_bytes", "what the engine wanted in all"),
    real("utilization_share", "share of the device that the engine may take"),
    whole("needed_bytes", "KV cache of the longest sequence"),
    whole("available_bytes", "what is left for the KV cache"),
    whole("model_length_count", "longest sequence, tokens"),
    whole("kv_token_count", "tokens that the KV cache holds"),
    whole("fitting_length_count", "longest sequence that would fit, as the engine says"),
    comment="Engines that refuse to start or to go on for want of memory",
)

allocation_retry = Table(
    "allocation_retry",
    metadata,
    of_source(),
    *_said_at(),
    whole("tried_bytes", "what was asked for"),
    whole("free_bytes", "free on the device at that moment"),
    whole("total_bytes", "size of the device"),
    comment="Allocations that the driver refused at first: the allocator gives cached memory back and asks again",
)

allocator_summary = Table(
    "allocator_summary",
    metadata,
    of_source(),
    small("device_id", "device of the recorded process"),
    whole("allocated_bytes", "in tensors"),
    whole("active_bytes", "in tensors, or waiting for a stream"),
    whole("reserved_bytes", "held by the allocator"),
    whole("unreleasable_bytes", "free, in segments that cannot be given back"),
    whole("retry_count", "allocations that the driver refused at first"),
    whole("oom_count", "allocations that failed"),
    comment="torch.cuda.memory_summary()",
)

allocator_segment = Table(
    "allocator_segment",
    metadata,
    of_source(),
    *_in_pool(),
    whole("stream_id", "stream it serves"),
    whole("total_bytes", "size"),
    whole("allocated_bytes", "in tensors"),
    whole("active_bytes", "in tensors, or waiting for a stream"),
    text_column("segment_kind", "small, large"),
    flag("is_private_pool", "belongs to a private pool, such as that of CUDA graphs"),
    flag("is_expandable", "grows in place: a hole in it is given back or used again"),
    interned("stack", "frames that made it, innermost first"),
    comment="Segments of PyTorch's caching allocator, from a memory snapshot; as they were when an allocation failed",
)

allocator_block = Table(
    "allocator_block",
    metadata,
    of_source(),
    *_in_pool(),
    whole("size_bytes", "size"),
    whole("requested_bytes", "what was asked for, before rounding"),
    text_column("block_state", "active: in a tensor; pending: freed, a stream still uses it; inactive: free"),
    whole("allocated_ns", "when, on the source's clock; NULL where before the recorded history"),
    interned("stack", "frames that made it, innermost first"),
    comment="Blocks of those segments",
)

allocator_step = Table(
    "allocator_step",
    metadata,
    of_source(),
    small("device_id", "device of the recorded process"),
    whole("step_id", "place in the recorded history, from 0"),
    whole("time_ns", "time on the source's clock; NULL where not recorded"),
    text_column("action", "alloc, free, segment_alloc, segment_free, oom"),
    whole("address", "where; NULL for oom"),
    whole("size_bytes", "bytes"),
    whole("free_bytes", "free on the device, for oom"),
    whole("allocated_bytes", "in tensors afterwards"),
    whole("reserved_bytes", "held by the allocator afterwards"),
    interned("stack", "frames that did it, innermost first"),
    comment="History of PyTorch's caching allocator, from a memory snapshot",
)

allocator_level = Table(
    "allocator_level",
    metadata,
    of_source(),
    whole("step_id", "place among what was printed, from 0"),
    whole("allocated_bytes", "in tensors"),
    whole("reserved_bytes", "held by the allocator"),
    whole("token_count", "tokens of the sequence, where the line tells them"),
    comment="Levels of PyTorch's allocator that a program printed step by step",
)
