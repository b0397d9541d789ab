"""The connection to the driver: NVML through NVIDIA's own binding.

A figure that a device, a driver version or the user's rights do not give is None; only a machine on which nothing can
be asked is an error.
"""

from __future__ import annotations

from types import ModuleType, TracebackType
from typing import Any

from doctor.errors import DeviceError
from doctor.vitals.devices import Devices
from doctor.vitals.holders import Holders
from doctor.vitals.reading import GpuAffinity, GpuProcess, GpuReading, MigInstance

_STILL = "recordings, logs and the output of nvidia-smi from another machine can still be diagnosed"


class Nvml:
    """An open connection to the driver; a context manager.

    Raises:
        DeviceError: on entering, where there is no driver, no device or no right; the message says which.
    """

    def __init__(self) -> None:
        self._api: ModuleType = _binding()
        self._handles: list[tuple[int, Any]] = []
        self._driver: str | None = None
        self._cuda: str | None = None

    def __enter__(self) -> Nvml:
        api = self._api
        try:
            api.nvmlInit()
        except api.NVMLError as error:
            raise DeviceError(_why(api, error)) from error
        self._driver = self._ask("nvmlSystemGetDriverVersion")
        version = self._ask("nvmlSystemGetCudaDriverVersion_v2")
        self._cuda = None if version is None else f"{version // 1000}.{version % 1000 // 10}"
        count = self._ask("nvmlDeviceGetCount") or 0
        handles = [(place, self._ask("nvmlDeviceGetHandleByIndex", place)) for place in range(count)]
        self._handles = [(place, handle) for place, handle in handles if handle is not None]
        if not self._handles:
            self.__exit__(None, None, None)
            raise DeviceError(
                f"the NVIDIA driver {self._driver or ''} shows no device here (none given to this container, or no"
                f" right to /dev/nvidia*): start the container with --gpus all, or look on the host; {_STILL}"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ask("nvmlShutdown")

    def gpus(self) -> tuple[GpuReading, ...]:
        """The state of every device that answers."""
        devices = Devices(self._api, self._ask, self._driver, self._cuda)
        lists = Holders(self._api, self._ask)
        return tuple(devices.reading(place, handle, lists.told(handle)) for place, handle in self._handles)

    def processes(self) -> tuple[GpuProcess, ...]:
        """Who holds memory of each device, with what /proc says of them."""
        holders = Holders(self._api, self._ask)
        return tuple(one for place, handle in self._handles for one in holders.processes(place, handle))

    def instances(self) -> tuple[MigInstance, ...]:
        """Slices of divided devices."""
        devices = Devices(self._api, self._ask, self._driver, self._cuda)
        return tuple(one for place, handle in self._handles for one in devices.slices(place, handle))

    def affinities(self) -> tuple[GpuAffinity, ...]:
        """CPUs near each device."""
        devices = Devices(self._api, self._ask, self._driver, self._cuda)
        return tuple(devices.affinity(place, handle) for place, handle in self._handles)

    def _ask(self, question: str, *arguments: Any) -> Any:
        """An answer, or None where this binding, device, driver or user gets none."""
        try:
            return getattr(self._api, question)(*arguments)
        except (self._api.NVMLError, AttributeError, TypeError, ValueError):
            return None


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
