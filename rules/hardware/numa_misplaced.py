"""A worker runs on the wrong socket: its CPUs or its memory are far from its device.

What happens: on a machine with several sockets (NUMA nodes) each device hangs on one of them. A worker whose threads or
memory lie on another sends every copy and every launch across the link between the sockets: copies run at a half or two
thirds of their rate, and launches take longer and vary more.

How it is detected: the CPUs that a worker may use lie outside the node of its device, or at least 10 % of its memory
does. The topology names the node of each device; a worker without any pinning on such a machine is said at low severity.

When it is not this: where hardly anything moves between host and device, and the host is not what the device waits for,
the wrong socket costs little: the finding is high only with such traffic. Machines with one node are never meant.
"""

from typing import NamedTuple

from doctor.rule import About, Cleared, Evidence, Finding, Fix, Rule, Severity, Stage, Threshold, Verdict, Where

ABOUT = About(
    id="numa-misplaced",
    title="A worker runs far from its device",
    stage=Stage.HARDWARE,
    reads=("numa_place",),
    needs=("nvml", "topology", "cgroup"),
)

THRESHOLDS = {
    "min_remote_share": Threshold(
        0.1, "of the resident memory", source="vllm PR#30492: 22 % on the remote node in a slow run"
    ),
    "busy_copy_share": Threshold(
        0.05, "share of the window", source="vllm PR#30492: 1.5x with offload, little without"
    ),
    "copy_factor": Threshold(
        1.5, "times faster copies", source="vllm PR#30492: right nodes against any other, 4 GiB offloaded"
    ),
}

SQL = """
WITH copied AS (
    SELECT coalesce(sum(end_ns - start_ns) FILTER (copy_kind = 'htod'), 0) / nullif(any_value(until_ns - from_ns), 0) AS copy_share, count(*) AS op_count
    FROM device_op, steady_window WHERE start_ns >= from_ns AND start_ns < until_ns
)
SELECT place.pid, place.name, device_id, near_node_id, near_cpus, cpu_affinity, cpu_allowed_count, numa_node_id, resident_bytes, resident_remote_bytes,
    node_count, cpu_count, copy_share, op_count,
    (SELECT count(*) FROM engine_choice WHERE setting = 'offload_gib' AND coalesce(told_count, 0) > 0) AS offload_count
FROM numa_place AS place, copied
WHERE device_id IS NOT NULL OR resident_remote_bytes IS NOT NULL
ORDER BY place.pid
"""


class Place(NamedTuple):
    """A worker, where it may run, and where its device is."""

    pid: int | None
    name: str | None
    device_id: int | None
    near_node_id: int | None
    near_cpus: str | None
    cpu_affinity: str | None
    cpu_allowed_count: int | None
    numa_node_id: int | None
    resident_bytes: int | None
    resident_remote_bytes: int | None
    node_count: int
    cpu_count: int | None
    copy_share: float | None
    op_count: int
    offload_count: int


def judge(row: Place) -> Verdict:
    """CPUs or memory on the other side."""
    where = _where(row)
    remote = row.resident_remote_bytes / row.resident_bytes if row.resident_remote_bytes and row.resident_bytes else 0.0
    signs = []
    if where == "outside":
        signs.append(
            f"its CPUs ({row.cpu_affinity or f'node {row.numa_node_id}'}) are not those near the device ({row.near_cpus or f'node {row.near_node_id}'})"
        )
    if remote >= THRESHOLDS["min_remote_share"].value:
        signs.append(f"{remote:.0%} of its memory lies on another node")
    if not signs and where != "anywhere":
        return None
    if not signs:
        signs.append(f"it may run on any of {row.cpu_allowed_count or 'all'} CPUs of {row.node_count} nodes")
    carries = (row.copy_share or 0.0) >= THRESHOLDS["busy_copy_share"].value or row.offload_count > 0
    if row.op_count and not carries and where == "anywhere":
        return Cleared(
            f"{_whom(row)} is not pinned to a node, but copies take {row.copy_share or 0:.1%} of the window only"
        )
    return _finding(row, signs, remote, carries=carries, is_pinned_wrong=where == "outside" or remote > 0)


def _finding(row: Place, signs: list[str], remote: float, *, carries: bool, is_pinned_wrong: bool) -> Finding:
    severity = Severity.HIGH if carries and is_pinned_wrong else Severity.MEDIUM if is_pinned_wrong else Severity.LOW
    copies = row.copy_share or 0.0
    saved = copies * (1 - 1 / THRESHOLDS["copy_factor"].value)
    on = f" (GPU {row.device_id})" if row.device_id is not None else ""
    return Finding(
        summary=f"{_whom(row)}{on}: {'; '.join(signs)}"
        + (f"; copies to the device take {copies:.0%} of the window" if carries and copies else ""),
        evidence=(
            Evidence(
                "memory on another node",
                remote,
                "share of resident memory",
                Where(device_id=row.device_id, pid=row.pid),
            ),
            Evidence("CPUs it may run on", row.cpu_affinity or "unknown", "list"),
        ),
        severity=severity,
        speedup_bound=1 / (1 - saved) if saved else None,
        confidence=0.85 if is_pinned_wrong else 0.5,
        label=_whom(row),
    )


def _whom(row: Place) -> str:
    return "the worker" if row.pid is None else f"process {row.pid}"


def _where(row: Place) -> str:
    """`near`, `outside`, `anywhere` or `unknown`: the worker's CPUs against those of its device's node."""
    if row.numa_node_id is not None and row.near_node_id is not None:
        return "near" if row.numa_node_id == row.near_node_id else "outside"
    own, near = _numbers(row.cpu_affinity), _numbers(row.near_cpus)
    if not own or not near:
        return "unknown"
    if own <= near:
        return "near"
    return "outside" if not own & near else "anywhere"


def _numbers(ranges: str | None) -> frozenset[int]:
    """CPUs of a list such as `0-31,64`; a list that is none gives nothing."""
    found: set[int] = set()
    for part in (ranges or "").split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdigit() and len(first) < 6 and (not dash or (last.isdigit() and len(last) < 6))):
            return frozenset()
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


FIXES = (
    Fix(
        "vllm",
        "--numa-bind (with --numa-bind-nodes where the automatic choice is wrong); workers are then spawned",
        "each worker starts on the node of its device",
        source="https://docs.vllm.ai/en/latest/configuration/optimization.html",
    ),
    Fix(
        "sglang",
        "--numa-node <node of rank 0> <node of rank 1> ...",
        "each scheduler process is bound to its node",
        source="https://docs.sglang.ai/advanced_features/server_arguments.html",
    ),
    Fix(
        "tensorrt-llm",
        "numactl --cpunodebind=<node> --membind=<node> around the command of each worker",
        "binding at the start moves all threads; binding later inside the process misses those that run already",
        source="https://nvidia.github.io/TensorRT-LLM/",
    ),
    Fix(
        "system",
        "numactl --cpunodebind=<node> --membind=<node> <command>; nvidia-smi topo -m names the node of each device",
        "threads and memory stay on the device's side",
        source="https://man7.org/linux/man-pages/man8/numactl.8.html",
    ),
)

RULE = Rule(
    about=ABOUT,
    thresholds=THRESHOLDS,
    sql=SQL,
    row=Place,
    judge=judge,
    fixes=FIXES,
    verify="numastat -p <pid> shows under 10 % on other nodes; copies reach the link's rate, and their times vary less.",
    doc=__doc__,
)
