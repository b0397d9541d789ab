"""How to collect each kind of evidence: a sentence and a command that people can type as it stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """What one kind of evidence is and how to get it; `command` may be empty."""

    kind: str
    words: str
    command: str


def recipe_for(kind: str) -> Recipe:
    """The recipe of a kind of evidence; kinds that are collected in one way share one, an unknown kind has no words."""
    return _RECIPES.get(kind, Recipe(kind, "", ""))


_NSYS = Recipe(
    "Nsight Systems report",
    "`doctor record -- COMMAND` makes one with vitals beside it; or a few dozen steps by hand:",
    "nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none --cuda-graph-trace=node -o trace COMMAND",
)
_RECIPES = {
    "nsys-report": _NSYS,
    "nsys-sqlite": _NSYS,
    "nsys-columnar": _NSYS,
    "kineto": Recipe(
        "PyTorch trace",
        "wrap a few steps in torch.profiler and export them.",
        'with torch.profiler.profile() as profiler: run(); profiler.export_chrome_trace("trace.json.gz")',
    ),
    "nvml": Recipe(
        "samples of NVML", "while the problem is there.", "doctor vitals --watch --format json > vitals.jsonl"
    ),
    "nvidia-smi": Recipe("nvidia-smi", "while the problem is there.", "nvidia-smi -q -x > nvidia-smi.xml"),
    "oom-text": Recipe(
        "out-of-memory text", "keep the whole error, traceback included.", "COMMAND 2>&1 | tee serve.log"
    ),
    "memory-snapshot": Recipe(
        "memory snapshot",
        "call torch.cuda.memory._record_memory_history() at start, then:",
        'torch.cuda.memory._dump_snapshot("memory.pickle")',
    ),
    "engine-log": Recipe(
        "log of the inference engine", "keep it from start to problem.", "vllm serve MODEL 2>&1 | tee engine.log"
    ),
    "engine-config": Recipe(
        "configuration", "the model's config.json, or the file of settings the server was started with.", "config.json"
    ),
    "nccl-log": Recipe("NCCL log", "start every rank with:", "NCCL_DEBUG=INFO NCCL_DEBUG_FILE=nccl.%h.%p.log COMMAND"),
    "kernel-log": Recipe("kernel log", "of the machine, around the problem.", "dmesg --time-format=iso > dmesg.txt"),
    "cgroup": Recipe(
        "limits of the container",
        "from inside it.",
        "head -50 /sys/fs/cgroup/cpu.{max,stat} /proc/pressure/* > cgroup.txt",
    ),
    "topology": Recipe("topology", "of the machine.", "nvidia-smi topo -m > topology.txt"),
    "bench-table": Recipe(
        "benchmark result",
        "the table or JSON of the engine's benchmark.",
        "vllm bench serve ... --save-result",
    ),
    "metrics": Recipe("metrics", "of the running server.", "curl -s http://localhost:8000/metrics > metrics.txt"),
}
