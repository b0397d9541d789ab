"""What tools print of devices, ranks and CPUs, built from figures: reconstructed, in the tools' own formats."""

# ruff: noqa: E501 - the tools' own lines are long

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HEADER = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
"""
RULE = "+-----------------------------------------+------------------------+----------------------+\n"
PROCESS_HEADER = """\

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
"""
END = "+-----------------------------------------------------------------------------------------+\n"


def smi_table(gpus: Sequence[Mapping[str, Any]], processes: Iterable[tuple[int, int, str, int]] | None = ()) -> str:
    """`nvidia-smi`: devices as mappings, processes as (device, pid, name, MiB); None prints an empty process table."""
    out = HEADER
    for place, gpu in enumerate(gpus):
        name, ecc, mig = gpu.get("name", "NVIDIA H100 80GB HBM3"), gpu.get("ecc", 0), gpu.get("mig", "Disabled")
        state = f"{gpu.get('temp', 45)}C    P{gpu.get('state', 0)}"
        power = f"{gpu.get('power', 300)}W / {gpu.get('limit', 700):>4}W"
        memory = f"{gpu.get('used', 0)}MiB / {gpu.get('total', 81559):>6}MiB"
        out += (
            f"| {place:>3}  {name:<28} On  |   {gpu.get('bus', f'00000000:{place + 1:02X}:00.0')} Off | {ecc:>20} |\n"
        )
        out += f"| N/A   {state:<14}{power:>18} | {memory:>22} | {gpu.get('busy', 0):>7}%      Default |\n"
        out += f"|                                         |                        | {mig:>20} |\n{RULE}"
    out += PROCESS_HEADER
    listed = None if processes is None else list(processes)
    for device, pid, name, mib in listed or ():
        out += f"| {device:>4}   N/A  N/A {pid:>15}      C   {name:<36} {mib:>7}MiB |\n"
    if listed == []:
        out += "|  No running processes found                                                             |\n"
    return out + END


def query_gpu(rows: Sequence[Mapping[str, str]]) -> str:
    """`nvidia-smi --query-gpu=... --format=csv`: names of fields to printed values; units stand in the header."""
    units = {"memory": " [MiB]", "utilization": " [%]", "clocks": " [MHz]", "power": " [W]"}
    names = list(rows[0])
    heads = [name + units.get(name.split(".")[0], "") for name in names]
    return "\n".join([", ".join(heads), *(", ".join(row[name] for name in names) for row in rows)]) + "\n"


def busy(count: int = 10, /, **changes: str) -> list[dict[str, str]]:
    """Samples of an H100 at work, a second apart; keyword names have `__` for the dots of the field."""
    base = {
        "timestamp": "",
        "index": "0",
        "name": "NVIDIA H100 80GB HBM3",
        "pstate": "P0",
        "utilization.gpu": "97 %",
        "temperature.gpu": "62",
        "power.draw": "480.10 W",
        "power.limit": "700.00 W",
        "power.default_limit": "700.00 W",
        "clocks.current.sm": "1965 MHz",
        "clocks.max.sm": "1980 MHz",
        "clocks.current.memory": "2619 MHz",
        "clocks.max.memory": "2619 MHz",
        "pcie.link.gen.current": "5",
        "pcie.link.gen.max": "5",
        "pcie.link.width.current": "16",
        "pcie.link.width.max": "16",
        "clocks_event_reasons.hw_thermal_slowdown": "Not Active",
        "clocks_event_reasons.sw_thermal_slowdown": "Not Active",
        "clocks_event_reasons.sw_power_cap": "Not Active",
        "clocks_event_reasons.hw_power_brake_slowdown": "Not Active",
        "clocks_event_reasons.applications_clocks_setting": "Not Active",
    }
    base |= {name.replace("__", "."): value for name, value in changes.items()}
    return [base | {"timestamp": f"2026/11/29 14:43:{second:02d}.000"} for second in range(count)]


def nvml_line(time_s: float, gpus: Sequence[Mapping[str, Any]] = (), **parts: Any) -> str:
    """One sample as `doctor vitals --format json` writes it."""
    document: dict[str, Any] = {"schema": "doctor.vitals/1", "time_ns": 1_790_000_000_000_000_000 + int(time_s * 1e9)}
    document["gpus"] = [{"device_id": place, **gpu} for place, gpu in enumerate(gpus)]
    return json.dumps(document | parts) + "\n"


def topology(links: Sequence[Sequence[str]], affinities: Sequence[tuple[str, str]] = ()) -> str:
    """`nvidia-smi topo -m`: rows of link words, and (CPUs, NUMA node) of each device."""
    count = len(links)
    out = "\t" + "\t".join(f"GPU{i}" for i in range(count)) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    for place, row in enumerate(links):
        cpus, node = affinities[place] if affinities else ("0-31", "0")
        out += (
            f"GPU{place}\t"
            + "\t".join(f" {word} " if word == "X" else word for word in row)
            + f"\t{cpus}\t{node}\t\tN/A\n"
        )
    return out + "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n"


def nccl_log(
    hosts: Sequence[str],
    *,
    via: str,
    network: str = "Socket",
    said: Sequence[str] = (),
) -> str:
    """`NCCL_DEBUG=INFO`: one rank a host name given (a host may come again), each connected to the next."""
    ranks = len(hosts)
    nodes = len(dict.fromkeys(hosts))
    lines = []
    for rank, host in enumerate(hosts):
        head = f"{host}:{1500 + rank}:{1500 + rank} [{rank % 8}] NCCL INFO"
        following = (rank + 1) % ranks
        local = sum(other == host for other in hosts[:rank])
        lines += [f"{head} NCCL version 2.26.5+cuda12.9", *(f"{head} {line}" for line in said)]
        lines += [
            f"{head} Using network {network}",
            f"{head} ncclCommInitRank comm 0x5{rank:07x} rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local} busId {local}0 commId 0xabc123 - Init START",
            f"{head} comm 0x5{rank:07x} rank {rank} nRanks {ranks} nNodes {nodes} localRanks {ranks // nodes} localRank {local} MNNVL 0",
            f"{head} Channel 00/0 : {rank}[{local}] -> {following}[{following % max(ranks // nodes, 1)}] {via}",
            f"{head} 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer",
            f"{head} ncclCommInitRank comm 0x5{rank:07x} rank {rank} nranks {ranks} cudaDev {local} nvmlDev {local} busId {local}0 commId 0xabc123 - Init COMPLETE",
        ]
    return "\n".join(lines) + "\n"


def cpu_stat(periods: int, throttled: int, *, quota_cpus: float | None = 6.0, shell: str = "") -> str:
    """A look into a container's CPU control, with the names of the files as `tail -n +1` prints them."""
    quota = "max 100000" if quota_cpus is None else f"{round(quota_cpus * 100_000)} 100000"
    return (
        f"{shell}==> /sys/fs/cgroup/cpu.stat <==\nusage_usec 918273645\nuser_usec 718273645\nsystem_usec 200000000\n"
        f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {throttled * 81_000}\n\n"
        f"==> /sys/fs/cgroup/cpu.max <==\n{quota}\n"
    )


def pressure(some_percent: float) -> str:
    """`cat /proc/pressure/cpu` with its prompt."""
    return (
        f"$ cat /proc/pressure/cpu\nsome avg10={some_percent:.2f} avg60={some_percent:.2f} avg300={some_percent:.2f} total=73594280\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )


def process_status(pid: int, *, name: str = "python3", threads: int = 40, cpus: str = "0-171") -> str:
    """`cat /proc/PID/status`, the lines that matter and a few that do not."""
    return (
        f"Name:\t{name}\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\nPPid:\t4700\nUid:\t1000\t1000\t1000\t1000\n"
        f"VmPeak:\t 98765432 kB\nVmRSS:\t 12345678 kB\nThreads:\t{threads}\nCpus_allowed:\tffffffff\nCpus_allowed_list:\t{cpus}\n"
        f"Mems_allowed_list:\t0-1\nvoluntary_ctxt_switches:\t1234\nnonvoluntary_ctxt_switches:\t99\n"
    )
