"""The figures of one device, asked one by one: what a device does not tell stays None."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from doctor.formats.nvidia_smi.fields import reasons_of_mask
from doctor.formats.nvidia_smi.quantities import bus_id
from doctor.vitals import proc
from doctor.vitals.reading import GpuAffinity, GpuReading, MigInstance

Ask = Callable[..., Any]
"""Puts a question to the driver; None where it gives no answer."""

_MHZ = 10**6
_COUNTERS_SINCE = 580
"""Driver from which NVML numbers its newer slowdown counters 269 to 271; 251 to 253 before (nvml.h of CUDA 12, 13)."""
_HARDWARE_COUNTERS = {"sw_thermal_ns": (251, 269), "hw_thermal_ns": (252, 270), "power_brake_ns": (253, 271)}
_COMPUTE_MODES = {0: "default", 1: "exclusive_process", 2: "prohibited", 3: "exclusive_process"}
_DRIVER_MODELS = {0: "wddm", 1: "tcc", 2: "mcdm"}
_MOST_INSTANCES = 16
_WORD_BITS = 64


class Devices:
    """Asks for devices, by their place and handle.

    Args:
        api: the binding.
        ask: puts one question.
        driver: version of the driver.
        cuda: newest CUDA that it speaks.
    """

    def __init__(self, api: ModuleType, ask: Ask, driver: str | None, cuda: str | None) -> None:
        self._api = api
        self._ask = ask
        self._driver = driver
        self._cuda = cuda

    def reading(self, place: int, handle: Any, process_list: str) -> GpuReading:
        """The state of one device; `process_list` says how its processes were told."""
        ask = self._ask
        pci = ask("nvmlDeviceGetPciInfo", handle)
        model = _first(ask("nvmlDeviceGetDriverModel", handle))
        return GpuReading(
            device_id=place,
            name=ask("nvmlDeviceGetName", handle),
            pci_bus_id=None if pci is None else bus_id(str(pci.busId)),
            driver_version=self._driver,
            cuda_version=self._cuda,
            driver_model=None if model is None else _DRIVER_MODELS.get(model),
            is_pid_namespace=proc.is_pid_namespace(),
            process_list=process_list,
            **self._memory(handle),
            **self._load(handle),
            **self._clocks(handle),
            **self._power(handle),
            **self._link(handle),
            **self._modes(handle),
            **self._reasons(handle),
            **self._errors(handle),
        )

    def _memory(self, handle: Any) -> dict[str, Any]:
        api = self._api
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle, api.nvmlMemory_v2)
        if memory is None:
            memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        if memory is None:
            return {}
        return {f"memory_{name}_bytes": getattr(memory, name, None) for name in ("total", "used", "free", "reserved")}

    def _load(self, handle: Any) -> dict[str, Any]:
        load = self._ask("nvmlDeviceGetUtilizationRates", handle)
        return {} if load is None else {"busy_share": load.gpu / 100, "memory_busy_share": load.memory / 100}

    def _clocks(self, handle: Any) -> dict[str, Any]:
        api, ask = self._api, self._ask
        sm, memory = api.NVML_CLOCK_SM, api.NVML_CLOCK_MEM
        return {
            "sm_clock_hz": _scaled(ask("nvmlDeviceGetClockInfo", handle, sm), _MHZ),
            "sm_clock_max_hz": _scaled(ask("nvmlDeviceGetMaxClockInfo", handle, sm), _MHZ),
            "sm_clock_application_hz": _scaled(
                ask("nvmlDeviceGetApplicationsClock", handle, api.NVML_CLOCK_GRAPHICS), _MHZ
            ),
            "memory_clock_hz": _scaled(ask("nvmlDeviceGetClockInfo", handle, memory), _MHZ),
            "memory_clock_max_hz": _scaled(ask("nvmlDeviceGetMaxClockInfo", handle, memory), _MHZ),
            "performance_state": ask("nvmlDeviceGetPerformanceState", handle),
        }

    def _power(self, handle: Any) -> dict[str, Any]:
        api, ask = self._api, self._ask
        limits = ask("nvmlDeviceGetPowerManagementLimitConstraints", handle)
        slowdown = ask("nvmlDeviceGetTemperatureThreshold", handle, api.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        heat = ask("nvmlDeviceGetTemperatureV", handle, api.NVML_TEMPERATURE_GPU)
        if heat is None:
            heat = ask("nvmlDeviceGetTemperature", handle, api.NVML_TEMPERATURE_GPU)
        return {
            "power_watts": _per_thousand(ask("nvmlDeviceGetPowerUsage", handle)),
            "power_limit_watts": _per_thousand(ask("nvmlDeviceGetEnforcedPowerLimit", handle)),
            "power_limit_default_watts": _per_thousand(ask("nvmlDeviceGetPowerManagementDefaultLimit", handle)),
            "power_limit_max_watts": _per_thousand(None if limits is None else limits[1]),
            "temperature_celsius": None if heat is None else float(heat),
            "temperature_slowdown_celsius": None if slowdown is None else float(slowdown),
        }

    def _link(self, handle: Any) -> dict[str, Any]:
        ask = self._ask
        return {
            "pcie_generation": ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            "pcie_generation_max": ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "pcie_generation_device_max": ask("nvmlDeviceGetGpuMaxPcieLinkGeneration", handle),
            "pcie_lanes_count": ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            "pcie_lanes_max_count": ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
            "pcie_replay_count": ask("nvmlDeviceGetPcieReplayCounter", handle),
        }

    def _modes(self, handle: Any) -> dict[str, Any]:
        ask = self._ask
        mode = ask("nvmlDeviceGetComputeMode", handle)
        return {
            "is_persistence_on": _truth(ask("nvmlDeviceGetPersistenceMode", handle)),
            "compute_mode": _COMPUTE_MODES.get(mode) if mode is not None else None,
            "is_mig_on": _truth(_first(ask("nvmlDeviceGetMigMode", handle))),
            "is_ecc_on": _truth(_first(ask("nvmlDeviceGetEccMode", handle))),
        }

    def _reasons(self, handle: Any) -> dict[str, Any]:
        api = self._api
        mask = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if mask is None:  # the name before driver 535
            mask = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        found: dict[str, Any] = {} if mask is None else dict(reasons_of_mask(int(mask)))
        for name, policy in (
            ("power_cap_ns", api.NVML_PERF_POLICY_POWER),
            ("sync_boost_ns", api.NVML_PERF_POLICY_SYNC_BOOST),
        ):
            status = self._ask("nvmlDeviceGetViolationStatus", handle, policy)
            found[name] = None if status is None else int(status.violationTime)
        return found | self._hardware_counters(handle)

    def _hardware_counters(self, handle: Any) -> dict[str, int]:
        major = (self._driver or "").partition(".")[0]
        is_new = major.isdigit() and int(major) >= _COUNTERS_SINCE
        fields = {name: numbers[is_new] for name, numbers in _HARDWARE_COUNTERS.items()}
        values = self._ask("nvmlDeviceGetFieldValues", handle, list(fields.values()))
        if values is None:
            return {}
        return {
            name: int(value.value.ullVal)
            for name, value in zip(fields, values, strict=True)
            if value.nvmlReturn == self._api.NVML_SUCCESS
        }

    def _errors(self, handle: Any) -> dict[str, Any]:
        api, ask = self._api, self._ask
        corrected, uncorrected = api.NVML_MEMORY_ERROR_TYPE_CORRECTED, api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        volatile, aggregate = api.NVML_VOLATILE_ECC, api.NVML_AGGREGATE_ECC
        rows = ask("nvmlDeviceGetRemappedRows", handle) or (None, None, None, None)
        return {
            "ecc_corrected_count": ask("nvmlDeviceGetTotalEccErrors", handle, corrected, aggregate),
            "ecc_uncorrected_count": ask("nvmlDeviceGetTotalEccErrors", handle, uncorrected, aggregate),
            "ecc_uncorrected_volatile_count": ask("nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile),
            "remapped_corrected_count": rows[0],
            "remapped_uncorrected_count": rows[1],
            "is_remap_pending": _truth(rows[2]),
            "is_remap_failed": _truth(rows[3]),
        }

    def slices(self, place: int, handle: Any) -> list[MigInstance]:
        """Slices of a divided device."""
        ask = self._ask
        slices: list[MigInstance] = []
        if not _first(ask("nvmlDeviceGetMigMode", handle)):
            return slices
        for number in range(min(ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0, _MOST_INSTANCES)):
            part = ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            if part is None:
                continue
            memory = ask("nvmlDeviceGetMemoryInfo", part)
            attributes = ask("nvmlDeviceGetAttributes_v2", part)
            slices.append(
                MigInstance(
                    device_id=place,
                    mig_device_id=number,
                    gpu_instance_id=ask("nvmlDeviceGetGpuInstanceId", part),
                    compute_instance_id=ask("nvmlDeviceGetComputeInstanceId", part),
                    memory_total_bytes=None if memory is None else memory.total,
                    memory_used_bytes=None if memory is None else memory.used,
                    sm_count=None if attributes is None else attributes.multiprocessorCount,
                )
            )
        return slices

    def affinity(self, place: int, handle: Any) -> GpuAffinity:
        """CPUs and NUMA node near a device."""
        words = self._ask("nvmlDeviceGetCpuAffinity", handle, -(-(proc.cpu_count() or 1) // _WORD_BITS))
        cpus = [
            word_place * _WORD_BITS + bit
            for word_place, word in enumerate(words or [])
            for bit in range(_WORD_BITS)
            if word >> bit & 1
        ]
        pci = self._ask("nvmlDeviceGetPciInfo", handle)
        node = None if pci is None else proc.numa_node_of_device(bus_id(str(pci.busId)))
        return GpuAffinity(place, proc.as_ranges(cpus) or None, node)


def _first(pair: Any) -> Any:
    """The current of (current, pending)."""
    return pair[0] if isinstance(pair, list | tuple) and pair else pair


def _truth(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _scaled(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor


def _per_thousand(value: int | None) -> float | None:
    return None if value is None else value / 1000
