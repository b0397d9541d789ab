"""The page of `doctor vitals`: devices, who holds their memory, and the machine around them."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from doctor.reports.presentation import Presentation
from doctor.reports.text_console import as_text
from doctor.units import format_bytes
from doctor.vitals.reading import GpuReading, HostProcess, Reading

_REASONS = (
    ("is_throttled_hw_thermal", "hardware thermal slowdown"),
    ("is_throttled_power_brake", "power brake"),
    ("is_throttled_hw_slowdown", "hardware slowdown"),
    ("is_throttled_sw_thermal", "thermal slowdown"),
    ("is_throttled_power_cap", "power cap"),
    ("is_throttled_clock_setting", "clock setting"),
    ("is_throttled_sync_boost", "sync boost"),
    ("is_idle", "idle"),
)


def vitals_page(reading: Reading, presentation: Presentation) -> str:
    """The reading as text for a terminal."""
    return as_text(vitals_view(reading), presentation.width, is_coloured=presentation.is_coloured)


def vitals_view(reading: Reading) -> RenderableType:
    """The reading as something rich can show, also again and again."""
    parts: list[RenderableType] = [_devices(reading)]
    remarks = [Text(f"GPU {gpu.device_id}: {line}", style="yellow") for gpu in reading.gpus for line in _worries(gpu)]
    parts += [Text(), *remarks] if remarks else []
    parts.append(_holders(reading))
    parts += [Text(line) for line in _machine(reading)]
    parts += [Text(note, style="yellow") for note in reading.notes]
    return Group(*parts)


def _devices(reading: Reading) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("GPU", "memory used", "busy", "SM clock", "power", "temp", "PCIe"):
        table.add_column(name, no_wrap=True)
    for gpu in reading.gpus:
        table.add_row(
            f"{gpu.device_id} {gpu.name or ''}".strip(),
            _of(_bytes(gpu.memory_used_bytes), _bytes(gpu.memory_total_bytes)),
            _share(gpu.busy_share),
            _of(_mhz(gpu.sm_clock_hz), _mhz(gpu.sm_clock_max_hz), " MHz"),
            _of(_number(gpu.power_watts), _number(gpu.power_limit_watts), " W"),
            _number(gpu.temperature_celsius, " C"),
            _link(gpu),
        )
    return table


def _holders(reading: Reading) -> RenderableType:
    if not reading.processes:
        used = sum(gpu.memory_used_bytes or 0 for gpu in reading.gpus)
        total = sum(gpu.memory_total_bytes or 0 for gpu in reading.gpus)
        hidden = total and used > 0.05 * total
        return Text(f"\nno process is named{' although memory is used: look on the host' if hidden else ''}")
    facts = {one.pid: one for one in reading.host_processes}
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    for name in ("holder", "GPU", "memory", "SM", "type", "state", "parent", "threads", "NUMA"):
        table.add_column(name, no_wrap=True)
    for one in sorted(reading.processes, key=lambda process: -(process.memory_bytes or 0)):
        host = facts.get(one.pid, HostProcess(one.pid))
        table.add_row(
            f"{one.pid} {one.name or '(name hidden)'}",
            str(one.device_id),
            _bytes(one.memory_bytes) or "?",
            _share(one.sm_share),
            (one.process_type or "?").upper(),
            one.process_state or ("not in /proc" if one.is_in_proc is False else "?"),
            str(one.parent_pid or "?"),
            str(host.thread_count or "?"),
            "any" if host.numa_node_id is None else str(host.numa_node_id),
        )
    return Group(Text(), table)


def _worries(gpu: GpuReading) -> list[str]:
    """What to know about a device beside its figures."""
    found = [f"its clock is held back by {', '.join(_reasons(gpu))}"] if _reasons(gpu) else []
    if gpu.ecc_uncorrected_count:
        found.append(f"{gpu.ecc_uncorrected_count} uncorrected memory errors in its life")
    if gpu.is_remap_pending or gpu.is_remap_failed:
        found.append("a memory row waits to be replaced" if gpu.is_remap_pending else "a memory row cannot be replaced")
    if gpu.is_mig_on:
        found.append("divided into MIG instances")
    if gpu.compute_mode not in (None, "default"):
        found.append(f"compute mode {gpu.compute_mode}")
    if gpu.is_persistence_on is False:
        found.append("persistence mode is off: the first use after idle is slow")
    if gpu.process_list == "refused":
        found.append("the driver does not say who holds memory: look on the host, or as another user")
    return found


def _machine(reading: Reading) -> list[str]:
    lines = []
    if (host := reading.host) is not None:
        memory = _of(_bytes(host.memory_used_bytes), _bytes(host.memory_total_bytes))
        lines.append(f"\nhost: {host.cpu_count or '?'} CPUs, {host.cpu_allowed_count or '?'} allowed, memory {memory}")
    group = reading.cgroup
    if group is not None and group.quota_ns and group.period_ns:
        share = (group.throttled_count or 0) / max(group.period_count or 0, 1)
        lines.append(f"quota: {group.quota_ns / group.period_ns:.1f} CPUs, stopped at it in {share:.1%} of periods")
    some = {one.resource: one.avg10_share for one in reading.pressure if one.level == "some"}
    if some:
        lines.append("pressure (10 s): " + ", ".join(f"{name} {share:.1%}" for name, share in some.items()))
    return lines


def _reasons(gpu: GpuReading) -> list[str]:
    return [words for name, words in _REASONS if getattr(gpu, name)]


def _link(gpu: GpuReading) -> str:
    if gpu.pcie_generation is None or gpu.pcie_lanes_count is None:
        return "?"
    now = f"gen{gpu.pcie_generation} x{gpu.pcie_lanes_count}"
    most = f"gen{gpu.pcie_generation_max} x{gpu.pcie_lanes_max_count}"
    return now if now == most or gpu.pcie_generation_max is None else f"{now} of {most}"


def _of(now: str, most: str, unit: str = "") -> str:
    return f"{now or '?'} / {most}{unit}" if most else f"{now}{unit}" if now else "?"


def _bytes(size: int | None) -> str:
    return "" if size is None else format_bytes(size)


def _mhz(clock_hz: int | None) -> str:
    return "" if clock_hz is None else f"{clock_hz / 1e6:.0f}"


def _number(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.0f}{unit}"


def _share(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"
