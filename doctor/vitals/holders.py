"""Who holds a device's memory: NVML's lists, with what /proc says of each process. Never a command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from doctor.formats.nvidia_smi.quantities import program
from doctor.vitals import proc
from doctor.vitals.reading import GpuProcess


class Holders:
    """Asks for the processes of devices.

    Args:
        api: the binding.
        ask: puts one question; None where the driver gives no answer.
    """

    def __init__(self, api: ModuleType, ask: Callable[..., Any]) -> None:
        self._api = api
        self._ask = ask

    def _lists(self, handle: Any) -> Mapping[str, list[Any] | None]:
        return {
            "c": self._ask("nvmlDeviceGetComputeRunningProcesses", handle),
            "g": self._ask("nvmlDeviceGetGraphicsRunningProcesses", handle),
            "m+c": self._ask("nvmlDeviceGetMPSComputeRunningProcesses", handle),
        }

    def told(self, handle: Any) -> str:
        """How the processes of a device were told: listed, empty or refused."""
        lists = [found for found in self._lists(handle).values() if found is not None]
        return "refused" if not lists else "listed" if any(lists) else "empty"

    def processes(self, place: int, handle: Any) -> list[GpuProcess]:
        """Every process once, whatever lists it stands in."""
        found: dict[int, tuple[str, Any]] = {}
        for sort, entries in self._lists(handle).items():
            for entry in entries or []:
                known = found.get(entry.pid)
                found[entry.pid] = ("c+g" if known is not None and known[0] != sort and sort == "g" else sort, entry)
        loads = self._loads(handle)
        return [self._process(place, sort, entry, loads.get(pid)) for pid, (sort, entry) in sorted(found.items())]

    def _process(self, place: int, sort: str, entry: Any, load: float | None) -> GpuProcess:
        facts = proc.process(entry.pid)
        name = self._ask("nvmlSystemGetProcessName", entry.pid) if facts is None else None
        return GpuProcess(
            device_id=place,
            pid=entry.pid,
            name=facts.name if facts is not None else program(name or ""),
            process_type=sort,
            memory_bytes=entry.usedGpuMemory,
            gpu_instance_id=_instance(getattr(entry, "gpuInstanceId", None)),
            compute_instance_id=_instance(getattr(entry, "computeInstanceId", None)),
            sm_share=load,
            is_in_proc=facts is not None,
            process_state=None if facts is None else facts.process_state,
            parent_pid=None if facts is None else facts.parent_pid,
        )

    def _loads(self, handle: Any) -> dict[int, float]:
        """Share of the SMs' time by process, over what the driver's buffer holds: about the last second."""
        latest: dict[int, Any] = {}
        for sample in self._ask("nvmlDeviceGetProcessUtilization", handle, 0) or []:
            if sample.pid not in latest or sample.timeStamp > latest[sample.pid].timeStamp:
                latest[sample.pid] = sample
        return {pid: sample.smUtil / 100 for pid, sample in latest.items() if 0 <= sample.smUtil <= 100}


def _instance(number: int | None) -> int | None:
    """NVML says 0xFFFFFFFF outside MIG."""
    return None if number is None or number >= 2**31 else number
