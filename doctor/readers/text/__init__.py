"""Evidence in texts: one file per format. A new format is one line in `_SCANNERS`."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from doctor.readers.text.scanner import Scanner

_SCANNERS: tuple[tuple[str, str], ...] = (
    ("profile_sums", "ProfileSumsScanner"),
    ("operator_table", "OperatorTableScanner"),
    ("expert_log", "ExpertLogScanner"),
    ("engine_log", "EngineLogScanner"),
    ("command_line", "CommandLineScanner"),
    ("python_call", "PythonCallScanner"),
    ("python_session", "PythonSessionScanner"),
    ("cuda_memory", "CudaMemoryScanner"),
    ("slot_cache", "SlotCacheScanner"),
    ("metrics", "MetricsScanner"),
    ("serving_result", "ServingResultScanner"),
    ("markdown_table", "MarkdownTableScanner"),
    ("delimited_table", "DelimitedTableScanner"),
    ("result_lines", "ResultLinesScanner"),
    ("shared_prefix", "SharedPrefixScanner"),
    ("prefix_words", "PrefixWordsScanner"),
    ("oom", "OomScanner"),
    ("memory_guard", "MemoryGuardScanner"),
    ("allocator_summary", "AllocatorSummaryScanner"),
    ("memory_levels", "MemoryLevelsScanner"),
    ("latency_table", "LatencyTableScanner"),
    ("latency_list", "LatencyListScanner"),
    ("replica_table", "ReplicaTableScanner"),
    ("rank_times", "RankTimesScanner"),
    ("thread_pool", "ThreadPoolScanner"),
    ("numa_words", "NumaWordsScanner"),
    ("card_name", "CardNameScanner"),
    ("nvidia_smi_list", "NvidiaSmiListScanner"),
    ("nvidia_smi_table", "NvidiaSmiTableScanner"),
    ("nvidia_smi_query", "NvidiaSmiQueryScanner"),
    ("nvidia_smi_csv", "NvidiaSmiCsvScanner"),
    ("nvidia_smi_monitor", "NvidiaSmiMonitorScanner"),
    ("gpustat", "GpustatScanner"),
    ("task_manager", "TaskManagerScanner"),
    ("topology", "TopologyScanner"),
    ("lspci", "LspciScanner"),
    ("nccl_tests", "NcclTestsScanner"),
    ("nccl_log", "NcclLogScanner"),
    ("kernel_log", "KernelLogScanner"),
    ("cgroup", "CgroupScanner"),
)
"""Modules under `doctor.readers.text` and their scanners; imported when a text is read."""


def new_scanners() -> tuple[Scanner, ...]:
    """A fresh scanner of every kind, for one text."""
    return tuple(
        cast("Scanner", getattr(import_module(f"doctor.readers.text.{module}"), name)()) for module, name in _SCANNERS
    )
