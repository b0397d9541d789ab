"""Every form in which `nvidia-smi` prints, as the tool prints it (figures are made up), and the real table of one H200."""

# ruff: noqa: E501 - the tool's own lines are long

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.device_texts import smi_table
from tests.support.reading import Reading, read_all, rows
from tests.support.traces import shared_trace

OLD_TABLE = """\
Mon Mar  4 10:11:12 2019
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 418.67       Driver Version: 410.79       CUDA Version: 10.0     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla T4            Off  | 00000000:00:04.0 Off |                    3 |
| N/A   60C    P8    17W /  70W |   1024MiB / 15079MiB |     41%   E. Process |
+-------------------------------+----------------------+----------------------+
|   1  GeForce GTX 108...  Off  | 00000000:00:05.0  On |                  N/A |
| 23%   41C    P0    N/A /  N/A |     10MiB / 11178MiB |    ERR!      Default |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0     12345      C   ...nda3/envs/vllm/bin/python                1014MiB |
|    1      2222    C+G   /usr/lib/xorg/Xorg                             N/A  |
+-----------------------------------------------------------------------------+
"""
MIG_TABLE = """\
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.183.01             Driver Version: 535.183.01   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                   On |
| N/A   32C    P0              52W / 400W |   8200MiB / 40960MiB |     N/A      Default |
|                                         |                      |              Enabled |
+-----------------------------------------+----------------------+----------------------+

+---------------------------------------------------------------------------------------+
| MIG devices:                                                                          |
+------------------+--------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                   Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |                     BAR1-Usage | SM     Unc| CE ENC DEC OFA JPG    |
|                  |                                |        ECC|                       |
|==================+================================+===========+=======================|
|  0    1   0   0  |            8150MiB / 19968MiB  | 42      0 |  3   0    2    0    0 |
|                  |               2MiB / 32767MiB  |           |                       |
+------------------+--------------------------------+-----------+-----------------------+
|  0    2   0   1  |              25MiB / 19968MiB  | 42      0 |  3   0    2    0    0 |
|                  |               0MiB / 32767MiB  |           |                       |
+------------------+--------------------------------+-----------+-----------------------+

+---------------------------------------------------------------------------------------+
| Processes:                                                                            |
|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
|        ID   ID                                                             Usage      |
|=======================================================================================|
|    0    1    0      34567      C   python3                                   8120MiB  |
+---------------------------------------------------------------------------------------+
"""
LONG_REPORT = """\

==============NVSMI LOG==============

Timestamp                                 : Sun Nov 29 14:43:43 2026
Driver Version                            : 580.159.04
CUDA Version                              : 13.0

Attached GPUs                             : 2
GPU 00000000:41:00.0
    Product Name                          : NVIDIA H200
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    Driver Model
        Current                           : N/A
    PCI
        Bus Id                            : 00000000:41:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 4
                Device Max                : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 7
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                  : 1250 us
        SW Thermal Slowdown               : 0 us
    FB Memory Usage
        Total                             : 143771 MiB
        Reserved                          : 633 MiB
        Used                              : 123407 MiB
        Free                              : 19731 MiB
    BAR1 Memory Usage
        Total                             : 262144 MiB
        Used                              : 5 MiB
    Compute Mode                          : Default
    Utilization
        GPU                               : 41 %
        Memory                            : 5 %
    ECC Mode
        Current                           : Enabled
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 1
            SRAM Uncorrectable SEC-DED    : 2
            DRAM Uncorrectable            : 4
        Aggregate
            DRAM Correctable              : 9
            DRAM Uncorrectable            : 8
    Remapped Rows
        Correctable Error                 : 3
        Uncorrectable Error               : 1
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 39 C
    GPU Power Readings
        Average Power Draw                : 128.76 W
        Current Power Limit               : 700.00 W
        Default Power Limit               : 700.00 W
    Module Power Readings
        Average Power Draw                : N/A
    Clocks
        Graphics                          : 1980 MHz
        SM                                : 1980 MHz
        Memory                            : 3201 MHz
    Max Clocks
        SM                                : 1980 MHz
        Memory                            : 3201 MHz
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 2670
            Type                          : C
            Name                          : /opt/torch/.venv/bin/python3 serve.py --api-key secret
            Used GPU Memory               : 123398 MiB
GPU 00000000:42:00.0
    Product Name                          : NVIDIA H200
    FB Memory Usage
        Total                             : 143771 MiB
        Used                              : 0 MiB
    Processes                             : None
"""
XML_REPORT = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<timestamp>Sun Nov 29 14:43:43 2026</timestamp>
\t<driver_version>580.159.04</driver_version>
\t<cuda_version>13.0</cuda_version>
\t<attached_gpus>1</attached_gpus>
\t<gpu id="00000000:41:00.0">
\t\t<product_name>NVIDIA H200</product_name>
\t\t<mig_mode><current_mig>Enabled</current_mig></mig_mode>
\t\t<mig_devices>
\t\t\t<mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id><compute_instance_id>0</compute_instance_id>
\t\t\t<device_attributes><shared><multiprocessor_count>16</multiprocessor_count></shared></device_attributes>
\t\t\t<fb_memory_usage><total>16384 MiB</total><used>12 MiB</used></fb_memory_usage></mig_device>
\t\t</mig_devices>
\t\t<pci><pci_bus_id>00000000:41:00.0</pci_bus_id><pci_gpu_link_info><pcie_gen><max_link_gen>5</max_link_gen>
\t\t<current_link_gen>4</current_link_gen></pcie_gen><link_widths><max_link_width>16x</max_link_width>
\t\t<current_link_width>8x</current_link_width></link_widths></pci_gpu_link_info></pci>
\t\t<clocks_event_reasons><clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
\t\t<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle></clocks_event_reasons>
\t\t<clocks_event_reasons_counters><clocks_event_reasons_counters_sw_therm_slowdown>12 us</clocks_event_reasons_counters_sw_therm_slowdown>
\t\t</clocks_event_reasons_counters>
\t\t<fb_memory_usage><total>143771 MiB</total><used>123407 MiB</used></fb_memory_usage>
\t\t<gpu_power_readings><average_power_draw>128.76 W</average_power_draw><current_power_limit>700.00 W</current_power_limit></gpu_power_readings>
\t\t<clocks><sm_clock>1980 MHz</sm_clock></clocks><max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>
\t\t<processes><process_info><pid>2670</pid><type>C</type><process_name>C:\\Program Files\\srv\\python.exe --key x</process_name>
\t\t<used_memory>123398 MiB</used_memory></process_info></processes>
\t</gpu>
</nvidia_smi_log>
"""
QUERIES = """\
index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], clocks_event_reasons.active, power.draw [W]
0, NVIDIA H200, 41 %, 123407 MiB, 143771 MiB, 0x0000000000000024, 128.76 W
1, NVIDIA H200, 0 %, 0 MiB, 143771 MiB, 0x0000000000000001, [N/A]
0, NVIDIA H200, 43 %, 123407 MiB, 143771 MiB, 0x0000000000000000, 130.00 W
1, NVIDIA H200, 0 %, 0 MiB, 143771 MiB, 0x0000000000000001, [N/A]
pid, process_name, used_gpu_memory [MiB]
2670, /opt/torch/.venv/bin/python3, 123398
"""
DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
    0    128     39     38     45      5      0      0      0      0   3201   1980
    1     76     30      -      0      0      0      0      0      0   3201    345
    0    130     39     38     47      5      0      0      0      0   3201   1965
    1     76     30      -      0      0      0      0      0      0   3201    345
"""
LIST = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-7c9fa3a2-1fe1-4a5e-9b0a-6b1c3fbe7f11)
  MIG 3g.20gb     Device  0: (UUID: MIG-2f0c1f0e-5a1c-5d2f-8f57-7c9f3a2b1c0d)
  MIG 1g.5gb      Device  1: (UUID: MIG-GPU-7c9fa3a2-1fe1-4a5e-9b0a-6b1c3fbe7f11/13/0)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-8c9fa3a2-1fe1-4a5e-9b0a-6b1c3fbe7f12)
"""
GIB = 2**30
MIB = 2**20


def said(tmp_path: Path, text: str) -> Reading:
    path = tmp_path / "said.txt"
    path.write_text(text, encoding="utf-8")
    return read_all(path)


def test_reads_the_real_table_of_an_h200_and_completes_the_figure_that_it_cuts() -> None:
    reading = read_all(shared_trace("h200/foreign.nvidia-smi.txt"))
    [(pid, name, held)] = rows(reading, "gpu_process", "pid", "name", "memory_bytes")
    assert (pid, name) == (2670, "python3")
    assert abs(int(str(held)) - 129_392_181_248) < 16 * MIB  # what NVML said at the same time
    assert rows(
        reading, "gpu_sample", "memory_used_bytes", "memory_total_bytes", "power_limit_watts", "process_list"
    ) == [(123407 * MIB, 143771 * MIB, 700.0, "listed")]


def test_reads_a_table_of_the_old_layout_with_cut_names_and_unreadable_cells(tmp_path: Path) -> None:
    reading = said(tmp_path, OLD_TABLE)
    assert rows(
        reading,
        "gpu_sample",
        "device_id",
        "name",
        "busy_share",
        "compute_mode",
        "power_watts",
        "ecc_uncorrected_volatile_count",
    ) == [
        (0, "Tesla T4", 0.41, "exclusive_process", 17.0, 3),
        (1, "GeForce GTX 108...", None, "default", None, None),
    ]
    assert rows(reading, "gpu_process", "device_id", "pid", "process_type", "name", "memory_bytes") == [
        (0, 12345, "c", "python", 1014 * MIB),
        (1, 2222, "c+g", "Xorg", None),
    ]


def test_reads_slices_and_their_processes(tmp_path: Path) -> None:
    reading = said(tmp_path, MIG_TABLE)
    assert rows(reading, "mig_instance", "gpu_instance_id", "mig_device_id", "memory_total_bytes", "sm_count") == [
        (1, 0, 19968 * MIB, 42),
        (2, 1, 19968 * MIB, 42),
    ]
    assert rows(reading, "gpu_process", "pid", "gpu_instance_id", "memory_bytes") == [(34567, 1, 8120 * MIB)]
    assert reading.column("gpu_sample", "is_mig_on") == [True]


@pytest.mark.parametrize(("processes", "told"), [([], "none"), (None, "empty"), ([(0, 7, "python3", 5)], "listed")])
def test_tells_an_empty_list_of_processes_from_none_found(
    tmp_path: Path, processes: list[tuple[int, int, str, int]] | None, told: str
) -> None:
    reading = said(tmp_path, smi_table([{"used": 814, "busy": 78}], processes))
    assert reading.column("gpu_sample", "process_list") == [told]


def test_tells_looks_apart_and_survives_lost_spaces_and_quotes(tmp_path: Path) -> None:
    table = smi_table([{"used": 814}, {"used": 3}], [(0, 7, "python3", 800)]) + "Mon Mar  4 10:11:12 2019\n"
    squeezed = "\n".join("> " + " ".join(line.split()) for line in table.splitlines()) + "\n"
    reading = said(tmp_path, table + squeezed)
    assert rows(reading, "gpu_sample", "look_id", "device_id", "memory_used_bytes") == [
        (look, device, mib * MIB) for look in (0, 1) for device, mib in ((0, 814), (1, 3))
    ]
    assert rows(reading, "gpu_process", "look_id", "pid") == [(0, 7), (1, 7)]
    assert reading.column("gpu_sample", "time_ns")[2] == 1_551_694_272_000_000_000


def test_reads_the_long_report(tmp_path: Path) -> None:
    reading = said(tmp_path, LONG_REPORT)
    columns = (
        "pcie_generation",
        "pcie_lanes_count",
        "is_throttled_power_cap",
        "power_cap_ns",
        "ecc_uncorrected_volatile_count",
    )
    assert [reading.column("gpu_sample", name)[0] for name in columns] == [4, 8, True, 1_250_000, 7]
    more = ("ecc_uncorrected_count", "remapped_uncorrected_count", "is_remap_pending", "sm_clock_max_hz")
    assert [reading.column("gpu_sample", name)[0] for name in more] == [8, 1, True, 1980_000_000]
    assert rows(reading, "gpu_sample", "device_id", "pci_bus_id", "memory_used_bytes", "process_list") == [
        (0, "00000000:41:00.0", 123407 * MIB, "listed"),
        (1, "00000000:42:00.0", 0, "none"),
    ]
    assert rows(reading, "gpu_process", "device_id", "pid", "name") == [(0, 2670, "python3")]
    assert "secret" not in str(reading.parts)


def test_reads_the_same_report_as_xml(tmp_path: Path) -> None:
    reading = said(tmp_path, XML_REPORT)
    columns = (
        "memory_used_bytes",
        "pcie_generation",
        "pcie_lanes_count",
        "is_throttled_power_cap",
        "sw_thermal_ns",
        "power_watts",
        "is_mig_on",
    )
    assert rows(reading, "gpu_sample", *columns) == [(123407 * MIB, 4, 8, True, 12_000, 128.76, True)]
    assert rows(reading, "mig_instance", "gpu_instance_id", "memory_total_bytes", "sm_count") == [(1, 16 * GIB, 16)]
    assert rows(reading, "gpu_process", "pid", "name") == [(2670, "python.exe")]


def test_refuses_xml_that_declares_entities(tmp_path: Path) -> None:
    bomb = XML_REPORT.replace('SYSTEM "nvsmi_device_v12.dtd"', '[<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]')
    with pytest.raises(Exception, match="declares XML entities"):
        said(tmp_path, bomb)


def test_reads_queries_with_their_masks_looks_and_processes(tmp_path: Path) -> None:
    reading = said(tmp_path, QUERIES)
    assert rows(
        reading,
        "gpu_sample",
        "look_id",
        "device_id",
        "is_throttled_power_cap",
        "is_throttled_sw_thermal",
        "is_idle",
        "power_watts",
    ) == [
        (0, 0, True, True, False, 128.76),
        (0, 1, False, False, True, None),
        (1, 0, False, False, False, 130.0),
        (1, 1, False, False, True, None),
    ]
    assert rows(reading, "gpu_process", "pid", "name", "memory_bytes") == [(2670, "python3", 123398 * MIB)]


def test_takes_processes_without_a_header_only_where_nothing_else_could_be_meant(tmp_path: Path) -> None:
    reading = said(tmp_path, "2670, /usr/bin/python3, 1024 MiB\n")
    assert rows(reading, "gpu_process", "pid", "memory_bytes") == [(2670, GIB)]
    with pytest.raises(Exception, match="not known as evidence"):
        said(tmp_path, "0, 41, 123407, 143771\n")


def test_reads_samples_of_dmon(tmp_path: Path) -> None:
    reading = said(tmp_path, DMON)
    assert rows(reading, "gpu_sample", "look_id", "device_id", "busy_share", "sm_clock_hz") == [
        (0, 0, 0.45, 1980_000_000),
        (0, 1, 0.0, 345_000_000),
        (1, 0, 0.47, 1965_000_000),
        (1, 1, 0.0, 345_000_000),
    ]


def test_tells_columns_without_a_header_by_their_units(tmp_path: Path) -> None:
    lines = "2026/11/29 14:43:43.000, 0, NVIDIA H200, P0, 41 %, 123407 MiB, 143771 MiB, 128.76 W, 700.00 W, 1980 MHz, 0x0000000000000024\n"
    reading = said(tmp_path, lines.replace("2026/11/29 14:43:43.000, ", "") * 2)
    assert rows(
        reading,
        "gpu_sample",
        "look_id",
        "device_id",
        "memory_used_bytes",
        "memory_total_bytes",
        "busy_share",
        "sm_clock_hz",
    ) == [(look, 0, 123407 * MIB, 143771 * MIB, 0.41, 1980_000_000) for look in (0, 1)]
    assert reading.column("gpu_sample", "is_throttled_power_cap") == [True, True]
    assert any("told by their units" in note for note in reading.facts.notes)


def test_gives_processes_to_devices_by_their_uuid_and_keeps_none(tmp_path: Path) -> None:
    first, second = "GPU-529b3263-c96d-b557-bc75-697f04917eda", "GPU-629b3263-c96d-b557-bc75-697f04917edb"
    text = (
        f"index, uuid, memory.used [MiB]\n0, {first}, 100 MiB\n1, {second}, 900 MiB\n"
        f"gpu_uuid, pid, used_gpu_memory [MiB]\n{second}, 7, 850 MiB\n"
    )
    reading = said(tmp_path, text)
    assert rows(reading, "gpu_process", "device_id", "pid", "look_id") == [(1, 7, 0)]
    assert second not in str(reading.parts)


def test_reads_the_list_of_devices_and_slices(tmp_path: Path) -> None:
    reading = said(tmp_path, LIST)
    assert rows(reading, "gpu_sample", "device_id", "name", "is_mig_on") == [
        (0, "NVIDIA A100-SXM4-40GB", True),
        (1, "NVIDIA A100-SXM4-40GB", None),
    ]
    assert rows(reading, "mig_instance", "device_id", "mig_device_id", "memory_total_bytes") == [
        (0, 0, 20 * GIB),
        (0, 1, 5 * GIB),
    ]
    assert "7c9f" not in str(reading.parts)


@pytest.mark.parametrize(
    "prefix",
    ["> ", "gpu-watch-1  | ", "2026-03-04T05:06:07.123456789Z ", "[pod/vllm-0/smi] ", "Mar  4 05:06:07 box smi[7]: "],
)
def test_reads_a_table_behind_what_logs_put_before_each_line(tmp_path: Path, prefix: str) -> None:
    table = smi_table([{"used": 814}], [(0, 7, "python3", 800)])
    reading = said(tmp_path, "".join(f"{prefix}{line}\n" for line in table.splitlines()))
    assert reading.column("gpu_sample", "memory_used_bytes") == [814 * 2**20]
    assert reading.column("gpu_process", "memory_bytes") == [800 * 2**20]
