"""NVML through NVIDIA's own binding: every figure of a device that the driver gives, and who holds its memory.

A figure that a device, a driver version or the user's rights do not give is None; only a machine on which nothing can
be asked is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType, TracebackType
from typing import Any, TypeVar

from doctor.errors import DeviceError
from doctor.formats.nvidia_smi.fields import reasons_of_mask
from doctor.formats.nvidia_smi.quantities import bus_id, program
from doctor.vitals import proc
from doctor.vitals.reading import GpuAffinity, GpuProcess, GpuReading, MigInstance

_T = TypeVar("_T")
_STILL = "recordings, logs and the output of nvidia-smi from another machine can still be diagnosed"
_MHZ = 10**6
_COUNTERS_SINCE = 580
"""Driver from which NVML numbers its newer slowdown counters 269 to 271; 251 to 253 before (nvml.h of CUDA 12, 13)."""
_HARDWARE_COUNTERS = {"sw_thermal_ns": (251, 269), "hw_thermal_ns": (252, 270), "power_brake_ns": (253, 271)}
_COMPUTE_MODES = {0: "default", 1: "exclusive_process", 2: "prohibited", 3: "exclusive_process"}
_DRIVER_MODELS = {0: "wddm", 1: "tcc", 2: "mcdm"}
_MOST_INSTANCES = 16
_WORD_BITS = 64


class Nvml:
    """An open connection to the driver; a context manager.

    Raises:
        DeviceError: on entering, where there is no driver, no device or no right; the message says which.
    """

    def __init__(self) -> None:
        self._api: ModuleType = _binding()
        self._handles: list[Any] = []
        self._driver: str | None = None
        self._cuda: str | None = None

    def __enter__(self) -> Nvml:
        api = self._api
        try:
            api.nvmlInit()
        except api.NVMLError as error:
            raise DeviceError(_why(api, error)) from error
        self._driver = self._ask(api.nvmlSystemGetDriverVersion)
        version = self._ask(api.nvmlSystemGetCudaDriverVersion_v2)
        self._cuda = None if version is None else f"{version // 1000}.{version % 1000 // 10}"
        count = self._ask(api.nvmlDeviceGetCount) or 0
        self._handles = [self._ask(api.nvmlDeviceGetHandleByIndex, place) for place in range(count)]
        if not any(handle is not None for handle in self._handles):
            self.__exit__(None, None, None)
            raise DeviceError(
                f"the NVIDIA driver {self._driver or ''} shows no device here (none given to this container, or no"
                f" right to /dev/nvidia*): start the container with --gpus all, or look on the host; {_STILL}"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ask(self._api.nvmlShutdown)

    def gpus(self) -> tuple[GpuReading, ...]:
        """The state of every device that answers."""
        return tuple(self._gpu(place, handle) for place, handle in enumerate(self._handles) if handle is not None)

    def processes(self) -> tuple[GpuProcess, ...]:
        """Who holds memory of each device, with what /proc says of them."""
        return tuple(
            process
            for place, handle in enumerate(self._handles)
            if handle is not None
            for process in self._processes_of(place, handle)
        )

    def instances(self) -> tuple[MigInstance, ...]:
        """Slices of divided devices."""
        return tuple(
            slice_
            for place, handle in enumerate(self._handles)
            if handle is not None and self._is_divided(handle)
            for slice_ in self._slices_of(place, handle)
        )

    def affinities(self) -> tuple[GpuAffinity, ...]:
        """CPUs near each device."""
        return tuple(self._affinity(place, handle) for place, handle in enumerate(self._handles) if handle is not None)

    def _ask(self, question: Callable[..., _T], *arguments: Any) -> _T | None:
        """An answer, or None where this device, driver or user gets none."""
        try:
            return question(*arguments)
        except (self._api.NVMLError, AttributeError, TypeError, ValueError, UnicodeDecodeError):
            return None

    def _gpu(self, place: int, handle: Any) -> GpuReading:
        api, ask = self._api, self._ask
        pci = ask(api.nvmlDeviceGetPciInfo, handle)
        model = _first(ask(api.nvmlDeviceGetDriverModel, handle))
        return GpuReading(
            device_id=place,
            name=ask(api.nvmlDeviceGetName, handle),
            pci_bus_id=None if pci is None else bus_id(str(pci.busId)),
            driver_version=self._driver,
            cuda_version=self._cuda,
            driver_model=None if model is None else _DRIVER_MODELS.get(model),
            is_pid_namespace=proc.is_pid_namespace(),
            process_list=self._process_list(handle),
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
        memory = self._ask(api.nvmlDeviceGetMemoryInfo, handle, api.nvmlMemory_v2)
        if memory is None:
            memory = self._ask(api.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            return {}
        return {f"memory_{name}_bytes": getattr(memory, name, None) for name in ("total", "used", "free", "reserved")}

    def _load(self, handle: Any) -> dict[str, Any]:
        load = self._ask(self._api.nvmlDeviceGetUtilizationRates, handle)
        return {} if load is None else {"busy_share": load.gpu / 100, "memory_busy_share": load.memory / 100}

    def _clocks(self, handle: Any) -> dict[str, Any]:
        api, ask = self._api, self._ask
        sm, memory = api.NVML_CLOCK_SM, api.NVML_CLOCK_MEM
        return {
            "sm_clock_hz": _scaled(ask(api.nvmlDeviceGetClockInfo, handle, sm), _MHZ),
            "sm_clock_max_hz": _scaled(ask(api.nvmlDeviceGetMaxClockInfo, handle, sm), _MHZ),
            "sm_clock_application_hz": _scaled(
                ask(api.nvmlDeviceGetApplicationsClock, handle, api.NVML_CLOCK_GRAPHICS), _MHZ
            ),
            "memory_clock_hz": _scaled(ask(api.nvmlDeviceGetClockInfo, handle, memory), _MHZ),
            "memory_clock_max_hz": _scaled(ask(api.nvmlDeviceGetMaxClockInfo, handle, memory), _MHZ),
            "performance_state": ask(api.nvmlDeviceGetPerformanceState, handle),
        }

    def _power(self, handle: Any) -> dict[str, Any]:
        api, ask = self._api, self._ask
        limits = ask(api.nvmlDeviceGetPowerManagementLimitConstraints, handle)
        slowdown = ask(api.nvmlDeviceGetTemperatureThreshold, handle, api.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        heat = ask(api.nvmlDeviceGetTemperatureV, handle, api.NVML_TEMPERATURE_GPU)
        if heat is None:
            heat = ask(api.nvmlDeviceGetTemperature, handle, api.NVML_TEMPERATURE_GPU)
        return {
            "power_watts": _per_thousand(ask(api.nvmlDeviceGetPowerUsage, handle)),
            "power_limit_watts": _per_thousand(ask(api.nvmlDeviceGetEnforcedPowerLimit, handle)),
            "power_limit_default_watts": _per_thousand(ask(api.nvmlDeviceGetPowerManagementDefaultLimit, handle)),
            "power_limit_max_watts": _per_thousand(None if limits is None else limits[1]),
            "temperature_celsius": None if heat is None else float(heat),
            "temperature_slowdown_celsius": None if slowdown is None else float(slowdown),
        }

    def _link(self, handle: Any) -> dict[str, Any]:
        api, ask = self._api, self._ask
        return {
            "pcie_generation": ask(api.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            "pcie_generation_max": ask(api.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            "pcie_generation_device_max": ask(api.nvmlDeviceGetGpuMaxPcieLinkGeneration, handle),
            "pcie_lanes_count": ask(api.nvmlDeviceGetCurrPcieLinkWidth, handle),
            "pcie_lanes_max_count": ask(api.nvmlDeviceGetMaxPcieLinkWidth, handle),
            "pcie_replay_count": ask(api.nvmlDeviceGetPcieReplayCounter, handle),
        }

    def _modes(self, handle: Any) -> dict[str, Any]:
        api, ask = self._api, self._ask
        mode = ask(api.nvmlDeviceGetComputeMode, handle)
        return {
            "is_persistence_on": _truth(ask(api.nvmlDeviceGetPersistenceMode, handle)),
            "compute_mode": _COMPUTE_MODES.get(mode) if mode is not None else None,
            "is_mig_on": _truth(_first(ask(api.nvmlDeviceGetMigMode, handle))),
            "is_ecc_on": _truth(_first(ask(api.nvmlDeviceGetEccMode, handle))),
        }

    def _reasons(self, handle: Any) -> dict[str, Any]:
        api = self._api
        mask = self._ask(api.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if mask is None:  # the name before driver 535
            mask = self._ask(api.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        found: dict[str, Any] = {} if mask is None else dict(reasons_of_mask(int(mask)))
        for name, policy in (
            ("power_cap_ns", api.NVML_PERF_POLICY_POWER),
            ("sync_boost_ns", api.NVML_PERF_POLICY_SYNC_BOOST),
        ):
            status = self._ask(api.nvmlDeviceGetViolationStatus, handle, policy)
            found[name] = None if status is None else int(status.violationTime)
        return found | self._hardware_counters(handle)

    def _hardware_counters(self, handle: Any) -> dict[str, int]:
        major = (self._driver or "").partition(".")[0]
        is_new = major.isdigit() and int(major) >= _COUNTERS_SINCE
        fields = {name: numbers[is_new] for name, numbers in _HARDWARE_COUNTERS.items()}
        values = self._ask(self._api.nvmlDeviceGetFieldValues, handle, list(fields.values()))
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
        rows = ask(api.nvmlDeviceGetRemappedRows, handle) or (None, None, None, None)
        return {
            "ecc_corrected_count": ask(api.nvmlDeviceGetTotalEccErrors, handle, corrected, aggregate),
            "ecc_uncorrected_count": ask(api.nvmlDeviceGetTotalEccErrors, handle, uncorrected, aggregate),
            "ecc_uncorrected_volatile_count": ask(api.nvmlDeviceGetTotalEccErrors, handle, uncorrected, volatile),
            "remapped_corrected_count": rows[0],
            "remapped_uncorrected_count": rows[1],
            "is_remap_pending": _truth(rows[2]),
            "is_remap_failed": _truth(rows[3]),
        }

    def _lists(self, handle: Any) -> Mapping[str, list[Any] | None]:
        api = self._api
        return {
            "c": self._ask(api.nvmlDeviceGetComputeRunningProcesses, handle),
            "g": self._ask(api.nvmlDeviceGetGraphicsRunningProcesses, handle),
            "m+c": self._ask(api.nvmlDeviceGetMPSComputeRunningProcesses, handle),
        }

    def _process_list(self, handle: Any) -> str:
        lists = [found for found in self._lists(handle).values() if found is not None]
        return "refused" if not lists else "listed" if any(lists) else "empty"

    def _processes_of(self, place: int, handle: Any) -> list[GpuProcess]:
        found: dict[int, tuple[str, Any]] = {}
        for sort, entries in self._lists(handle).items():
            for entry in entries or []:
                known = found.get(entry.pid)
                found[entry.pid] = ("c+g" if known is not None and known[0] != sort and sort == "g" else sort, entry)
        loads = self._loads(handle)
        return [self._process(place, sort, entry, loads.get(pid)) for pid, (sort, entry) in sorted(found.items())]

    def _process(self, place: int, sort: str, entry: Any, load: float | None) -> GpuProcess:
        facts = proc.process(entry.pid)
        name = self._ask(self._api.nvmlSystemGetProcessName, entry.pid) if facts is None else None
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
        for sample in self._ask(self._api.nvmlDeviceGetProcessUtilization, handle, 0) or []:
            if sample.pid not in latest or sample.timeStamp > latest[sample.pid].timeStamp:
                latest[sample.pid] = sample
        return {pid: sample.smUtil / 100 for pid, sample in latest.items() if 0 <= sample.smUtil <= 100}

    def _is_divided(self, handle: Any) -> bool:
        return bool(_first(self._ask(self._api.nvmlDeviceGetMigMode, handle)))

    def _slices_of(self, place: int, handle: Any) -> list[MigInstance]:
        api, ask = self._api, self._ask
        slices: list[MigInstance] = []
        for number in range(min(ask(api.nvmlDeviceGetMaxMigDeviceCount, handle) or 0, _MOST_INSTANCES)):
            part = ask(api.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if part is None:
                continue
            memory = ask(api.nvmlDeviceGetMemoryInfo, part)
            attributes = ask(api.nvmlDeviceGetAttributes_v2, part)
            slices.append(
                MigInstance(
                    device_id=place,
                    mig_device_id=number,
                    gpu_instance_id=ask(api.nvmlDeviceGetGpuInstanceId, part),
                    compute_instance_id=ask(api.nvmlDeviceGetComputeInstanceId, part),
                    memory_total_bytes=None if memory is None else memory.total,
                    memory_used_bytes=None if memory is None else memory.used,
                    sm_count=None if attributes is None else attributes.multiprocessorCount,
                )
            )
        return slices

    def _affinity(self, place: int, handle: Any) -> GpuAffinity:
        words = self._ask(self._api.nvmlDeviceGetCpuAffinity, handle, -(-(proc.cpu_count() or 1) // _WORD_BITS))
        cpus = [
            word_place * _WORD_BITS + bit
            for word_place, word in enumerate(words or [])
            for bit in range(_WORD_BITS)
            if word >> bit & 1
        ]
        pci = self._ask(self._api.nvmlDeviceGetPciInfo, handle)
        node = None if pci is None else proc.numa_node_of_device(bus_id(str(pci.busId)))
        return GpuAffinity(place, proc.as_ranges(cpus) or None, node)


def _binding() -> ModuleType:
    import pynvml  # noqa: PLC0415 - the binding is loaded only where a device is asked

    module: ModuleType = pynvml
    return module


def _why(api: ModuleType, error: Any) -> str:
    """One line: what is missing, and what can still be done."""
    reasons = {
        api.NVML_ERROR_LIBRARY_NOT_FOUND: "there is no NVIDIA driver on this machine (its library libnvidia-ml is not"
        " found)",
        api.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded, or this container was given"
        " no device: run nvidia-smi on the host",
        api.NVML_ERROR_NO_PERMISSION: "no permission to ask the NVIDIA driver: run as a user who may open"
        " /dev/nvidiactl",
        api.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the loaded driver and its library are of different versions, as after"
        " an update: reboot, or reload the driver",
    }
    reason = reasons.get(getattr(error, "value", None), f"the NVIDIA driver does not answer ({error})")
    return f"{reason}; {_STILL}"


def _first(pair: Any) -> Any:
    """The current of (current, pending)."""
    return pair[0] if isinstance(pair, list | tuple) and pair else pair


def _truth(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _scaled(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor


def _per_thousand(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _instance(number: int | None) -> int | None:
    """NVML says 0xFFFFFFFF outside MIG."""
    return None if number is None or number >= 2**31 else number
