"""Collects the long report of one device, leaf by leaf: its figures, its processes, its slices."""

from __future__ import annotations

from typing import Any

from doctor.formats.nvidia_smi import report

MOST_LEAVES = 4000
"""A report has a few hundred; lists of supported clocks, which are longer, are not kept."""
MOST_PROCESSES = 4096


class DeviceReport:
    """One device while its report is read; `leaf` for each line or element, then the results."""

    def __init__(self) -> None:
        self._entries: list[tuple[report.Path, str]] = []
        self._processes: list[dict[str, Any]] = []
        self._instances: list[dict[str, Any]] = []
        self._process: dict[str, str] = {}
        self._instance: dict[str, str] = {}
        self.process_list: str | None = None

    def section(self, path: report.Path) -> None:
        """A heading without a value."""
        if path[-1:] == ("processes",):
            self.process_list = self.process_list or "empty"

    def leaf(self, path: report.Path, text: str) -> None:
        """A name with a value; `path` as written by `report.part`, without the device's own name."""
        if path == ("processes",):
            self.process_list = "none" if text.strip().lower() == "none" else None
        elif path[0] == "processes":
            self._take_process(path[-1], text)
        elif any(name.startswith("mig_device") for name in path):
            place = next(i for i, name in enumerate(path) if name.startswith("mig_device"))
            inside = [name for name in path[place + 1 :] if name != "mig_device"]
            self._take_instance("/".join(inside[-2:]), text)
        elif "supported_clocks" not in path and len(self._entries) < MOST_LEAVES:
            self._entries.append((path, text))

    def figures(self) -> dict[str, Any]:
        """The device's row of `gpu_sample`, without what the report says once for all devices."""
        found = report.figures(self._entries)
        self.processes()
        return found | {"process_list": "listed" if self._processes else self.process_list}

    def processes(self) -> list[dict[str, Any]]:
        """Rows of `gpu_process`."""
        self._close_process()
        return self._processes

    def instances(self) -> list[dict[str, Any]]:
        """Rows of `mig_instance`."""
        self._close_instance()
        return self._instances

    def _take_process(self, name: str, text: str) -> None:
        if name in self._process:
            self._close_process()
        self._process[name] = text

    def _close_process(self) -> None:
        row = report.process(self._process)
        if row is not None and len(self._processes) < MOST_PROCESSES:
            self._processes.append(row)
        self._process = {}

    def _take_instance(self, name: str, text: str) -> None:
        if name in self._instance:
            self._close_instance()
        if name:
            self._instance[name] = text

    def _close_instance(self) -> None:
        row = report.mig_instance(self._instance)
        if row["gpu_instance_id"] is not None and len(self._instances) < MOST_PROCESSES:
            self._instances.append(row)
        self._instance = {}
