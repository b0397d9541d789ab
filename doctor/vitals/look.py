"""One look at everything that can be asked."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from doctor.vitals import proc
from doctor.vitals.nvml import Nvml
from doctor.vitals.reading import HostProcess, Reading


def look(nvml: Nvml | None, recorded_pid: int | None = None, *, is_first: bool = True) -> Reading:
    """Ask devices and machine.

    Args:
        nvml: an open connection; None where there is no device: the machine is asked all the same.
        recorded_pid: a command that is being recorded; its processes are marked.
        is_first: also ask what does not change: slices, and what lies near each device.
    """
    own = frozenset(proc.descendants(recorded_pid)) if recorded_pid is not None else frozenset()
    processes = nvml.processes() if nvml is not None else ()
    if recorded_pid is not None:
        processes = tuple(replace(one, is_own=one.pid in own) if one.is_in_proc else one for one in processes)
    devices = {one.pid: one.device_id for one in processes}
    return Reading(
        time_ns=time.time_ns(),
        gpus=nvml.gpus() if nvml is not None else (),
        processes=processes,
        instances=nvml.instances() if nvml is not None and is_first else (),
        affinities=nvml.affinities() if nvml is not None and is_first else (),
        host=proc.host(),
        host_processes=tuple(_host_processes({*own, *devices}, own, devices)),
        cgroup=proc.cgroup(),
        pressure=proc.pressure(),
    )


def _host_processes(pids: Iterable[int], own: frozenset[int], devices: dict[int, int]) -> Iterable[HostProcess]:
    for pid in sorted(pids):
        found = proc.host_process(pid, is_recorded=pid in own)
        if found is not None:
            yield replace(found, device_id=devices.get(pid))
