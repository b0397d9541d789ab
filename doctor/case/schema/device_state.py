"""The state of devices over time: NVML samples, nvidia-smi, who holds memory."""

from __future__ import annotations

from sqlalchemy import Column, Table

from doctor.case.schema.columns import flag, metadata, of_source, real, small, text_column, whole


def _looked_at() -> tuple[Column[int], ...]:
    """Which look, when, and which device."""
    return (
        small("look_id", "number of the look within its source, from 0: joins processes to the state of their device"),
        whole("time_ns", "when it was looked at, on the source's clock; NULL where the evidence is one look"),
        small("device_id", "index of the device as NVML and nvidia-smi count; CUDA may count otherwise"),
    )


def _in_instance() -> tuple[Column[int], Column[int]]:
    """Which slice of a divided device."""
    return (
        small("gpu_instance_id", "MIG GPU instance; NULL outside MIG"),
        small("compute_instance_id", "MIG compute instance; NULL outside MIG"),
    )


gpu_sample = Table(
    "gpu_sample",
    metadata,
    of_source(),
    *_looked_at(),
    text_column("name", "product name, as far as it was printed"),
    text_column("pci_bus_id", "domain:bus:device.function in lower case, domain of eight digits"),
    text_column("driver_version", "version of the driver"),
    text_column("cuda_version", "newest CUDA that the driver speaks"),
    text_column("driver_model", "wddm, tcc, mcdm on Windows; NULL on Linux or unknown"),
    whole("memory_total_bytes", "device memory"),
    whole("memory_used_bytes", "in use by anybody, with what the driver reserves where the tool counts it so"),
    whole("memory_free_bytes", "free"),
    whole("memory_reserved_bytes", "held back by driver and firmware"),
    real("busy_share", "share of the last sample period in which any kernel ran"),
    real("memory_busy_share", "share of the last sample period in which memory was read or written"),
    whole("sm_clock_hz", "SM clock now"),
    whole("sm_clock_max_hz", "highest SM clock of the product"),
    whole("sm_clock_application_hz", "application clock that was asked for"),
    whole("memory_clock_hz", "memory clock now"),
    whole("memory_clock_max_hz", "highest memory clock of the product"),
    real("power_watts", "power drawn"),
    real("power_limit_watts", "limit in force"),
    real("power_limit_default_watts", "limit after a reset"),
    real("power_limit_max_watts", "highest limit that may be set"),
    real("temperature_celsius", "temperature of the chip"),
    real("temperature_slowdown_celsius", "temperature at which the hardware slows down"),
    small("performance_state", "P-state; 0 is the fastest"),
    small("pcie_generation", "PCIe generation of the link now; idle links go down to save power"),
    small("pcie_generation_max", "highest generation that device and slot both allow"),
    small("pcie_generation_device_max", "highest generation of the device"),
    small("pcie_lanes_count", "lanes of the link now"),
    small("pcie_lanes_max_count", "lanes of the device"),
    whole("pcie_replay_count", "packets sent again since the driver was loaded"),
    flag("is_persistence_on", "the driver stays loaded while nobody uses the device"),
    text_column("compute_mode", "default, exclusive_process, prohibited"),
    flag("is_mig_on", "the device is divided into instances"),
    flag("is_ecc_on", "memory errors are corrected"),
    flag("is_throttled_power_cap", "event reason: software power cap, the limit binds"),
    flag("is_throttled_hw_slowdown", "event reason: hardware slowdown, thermal or power brake"),
    flag("is_throttled_hw_thermal", "event reason: hardware thermal slowdown"),
    flag("is_throttled_power_brake", "event reason: hardware power brake, signalled from outside"),
    flag("is_throttled_sw_thermal", "event reason: software thermal slowdown"),
    flag("is_throttled_sync_boost", "event reason: held at the clock of the slowest of a group"),
    flag("is_throttled_clock_setting", "event reason: application or locked clocks hold the clock"),
    flag("is_idle", "event reason: nothing runs, clocks are low on purpose"),
    whole("power_cap_ns", "counter of the driver: time under the software power cap"),
    whole("hw_thermal_ns", "counter of the driver: time under hardware thermal slowdown"),
    whole("power_brake_ns", "counter of the driver: time under the hardware power brake"),
    whole("sw_thermal_ns", "counter of the driver: time under software thermal slowdown"),
    whole("sync_boost_ns", "counter of the driver: time under sync boost"),
    whole("ecc_corrected_count", "corrected memory errors over the device's life"),
    whole("ecc_uncorrected_count", "uncorrected memory errors over the device's life"),
    whole("ecc_uncorrected_volatile_count", "uncorrected memory errors since the driver was loaded"),
    whole("remapped_corrected_count", "memory rows replaced after corrected errors"),
    whole("remapped_uncorrected_count", "memory rows replaced after uncorrected errors"),
    flag("is_remap_pending", "a row waits for a reset to be replaced"),
    flag("is_remap_failed", "a row could not be replaced"),
    whole("retired_pages_count", "pages retired (before rows could be remapped)"),
    text_column(
        "process_list",
        "listed: processes were named; none: the tool said that it found none; empty: a table without a line, which"
        " means found but not named; refused: no permission; NULL: not asked",
    ),
    flag("is_pid_namespace", "the tool looked from inside a pid namespace, where host pids are unknown"),
    comment="State of a device at one time: NVML, nvidia-smi in any of its forms",
)

gpu_process = Table(
    "gpu_process",
    metadata,
    of_source(),
    *_looked_at(),
    *_in_instance(),
    whole("pid", "process id, of the host where the tool looked from a pid namespace"),
    text_column("name", "base name of the executable; NULL where it was cut off or hidden"),
    text_column("process_type", "c: compute, g: graphics, c+g: both, m+c: compute through MPS"),
    whole("memory_bytes", "device memory held; NULL where the tool does not say"),
    real("sm_share", "share of the sample period in which its kernels ran"),
    flag("is_in_proc", "the pid exists in /proc of whoever looked; NULL where nobody looked"),
    text_column("process_state", "R, S, D, Z, T of /proc"),
    whole("parent_pid", "parent; 1 is a process whose parent died"),
    flag("is_own", "belongs to the recorded command"),
    comment="Processes on a device at one time, and the memory each holds",
)

mig_instance = Table(
    "mig_instance",
    metadata,
    of_source(),
    *_looked_at(),
    *_in_instance(),
    small("mig_device_id", "index of the slice on its device"),
    whole("memory_total_bytes", "memory of the slice"),
    whole("memory_used_bytes", "in use"),
    small("sm_count", "multiprocessors of the slice"),
    comment="Slices of a device divided by MIG",
)
