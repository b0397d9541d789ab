"""Diagnoses with the figures of real recordings, for tests of the faces."""

from __future__ import annotations

import math
from dataclasses import replace

from doctor.diagnosis.outcome import (
    Diagnosis,
    Display,
    EvidenceFile,
    Gain,
    KernelRow,
    NotRun,
    RankedFinding,
    ReplayQuality,
    RuledOut,
    TimelineBin,
    Window,
)
from doctor.rule import Evidence, Fix, Severity, Where

DECODE = Where(start_ns=120_000, end_ns=29_900_000, range="decode_step", device_id=0, stream_id=7)


def launch_bound() -> Diagnosis:
    """Eager decode at batch 1 on an H200: the host cannot launch as fast as the device computes."""
    return Diagnosis(
        evidence=(EvidenceFile("traces/launch-sick.nsys-rep", "nsys-report", "nsys 2025.3.1", True, ()),),
        window=Window(0, 239_300_000, 8, "nvtx:decode_step"),
        vitals={
            "gpu_busy": 0.155,
            "exposed_communication": 0.0,
            "exposed_copy": 0.004,
            "launches_per_step": 1180.0,
            "kernel_median_us": 2.1,
            "syncs_per_step": 1.0,
            "step_seconds": 0.0299,
        },
        findings=(_dispatch(), _graphs_off(), _module_load()),
        ruled_out=(
            RuledOut("sync-in-step", "136 syncs, but the GPU was idle after them for 0.4 % of the window"),
            RuledOut("pageable-copies", "1.2 % of the copied bytes are pageable: 48 KiB in the whole window"),
        ),
        not_run=(
            NotRun("foreign-gpu-process", ("nvml", "oom-text")),
            NotRun("fragmentation", ("memory-snapshot", "oom-text")),
            NotRun("own-pid-in-container", ("nvml", "oom-text")),
        ),
        replay=ReplayQuality(True, 0.0, 0.021, 1.4, 0.31, "correlation ids and host probe"),
        display=Display(timeline=_timeline(), kernels=_kernels()),
    )


def healthy() -> Diagnosis:
    """CUDA-graph decode with nothing to complain about."""
    return Diagnosis(
        evidence=(EvidenceFile("healthy.sqlite.gz", "nsys-sqlite", "nsys 2025.3.1", True, ()),),
        window=Window(0, 66_000_000, 8, "nvtx:decode_step"),
        vitals={"gpu_busy": 0.97, "launches_per_step": 1.0, "syncs_per_step": 1.0},
        findings=(),
        ruled_out=(RuledOut("sync-in-step", "8 syncs, but the GPU was idle after them for 0.1 % of the window"),),
        not_run=(NotRun("foreign-gpu-process", ("nvml", "oom-text")),),
        replay=ReplayQuality(True, 0.0, 0.012, None, None, "phi"),
    )


def healthy_with_a_note() -> Diagnosis:
    """As `healthy`, recorded so that the kernels of CUDA graphs are hidden."""
    note = RankedFinding(
        rule="trace-blind",
        title="The recording hides the kernels of graphs",
        summary="58 % of the device's time lies in CUDA graph launches recorded as one row each.",
        severity=Severity.INFO,
        confidence=0.9,
        gain=None,
        same_cause_as=None,
        evidence=(Evidence("device time inside graph rows", 0.575, "share of device time"),),
        fixes=(Fix("system", "nsys profile --cuda-graph-trace=node", "every kernel gets its row"),),
        verify="kernels are seen inside graph launches",
    )
    missing = NotRun("micro-batch-too-small", ("nsys-report", "nsys-sqlite", "kineto"))
    known = healthy()
    return replace(known, findings=(note,), not_run=(*known.not_run, missing))


def untrusted_replay() -> Diagnosis:
    """As `launch_bound`, from a recording that the replay does not reproduce: bounds only."""
    known = launch_bound()
    first = replace(known.findings[0], gain=Gain(0.19, 4.9))
    quality = ReplayQuality(False, 0.0, 0.16, None, None, "", ("two launching threads",))
    return replace(known, findings=(first, *known.findings[1:]), replay=quality)


def foreign_process() -> Diagnosis:
    """Out of memory because another process holds the device: a memory finding, no time-line at all."""
    finding = RankedFinding(
        rule="foreign-gpu-process",
        title="Another process fills the GPU",
        summary="Process 4242 (python3) holds 120.5 GiB of 139.8 GiB; the failed request was 2.00 GiB.",
        severity=Severity.CRITICAL,
        confidence=0.95,
        gain=Gain(bytes=129_385_889_792),
        same_cause_as=None,
        evidence=(Evidence("held by others", 129_385_889_792, "bytes", Where(pid=4242)),),
        fixes=(Fix("system", "CUDA_VISIBLE_DEVICES=<idle GPU>", "start on a device that is free"),),
        verify="nvidia-smi lists only your own process",
    )
    return Diagnosis(
        evidence=(EvidenceFile("oom.txt", "oom-text", None, False, ("the text ends inside the traceback",)),),
        window=None,
        vitals={"gpu_busy": None},
        findings=(finding,),
        ruled_out=(),
        not_run=(NotRun("host-dispatch-bound", ("nsys-report", "nsys-sqlite", "kineto")),),
    )


def hostile() -> Diagnosis:
    """Names out of a recording that try to steer a terminal, a page or a log."""
    evil = "\x1b[31mred\x1b[0m\r\n::error::x </script>|`<b>&\x00%0A\u202e"
    finding = RankedFinding(
        rule="host-dispatch-bound",
        title=evil,
        summary=evil,
        severity=Severity.MEDIUM,
        confidence=0.5,
        gain=Gain(seconds=math.nan, speedup_bound=math.inf),
        same_cause_as=None,
        evidence=(Evidence(evil, evil, evil, Where(range=evil)), Evidence("rate", math.nan, "bytes/s")),
        fixes=(Fix(evil, evil, evil),),
        verify=evil,
    )
    return Diagnosis(
        evidence=(EvidenceFile(f"/tmp/{evil}", "kineto", evil, False, (evil,)),),
        window=Window(0, 1, None, evil),
        vitals={"gpu_busy": math.nan},
        findings=(finding,),
        ruled_out=(RuledOut("sync-in-step", evil),),
        not_run=(NotRun("x", (evil,)),),
        display=Display(kernels=(KernelRow(evil, evil, 1, 1, 1, 1.0),)),
    )


def _dispatch() -> RankedFinding:
    return RankedFinding(
        rule="host-dispatch-bound",
        title="Decode is bound by kernel launches",
        summary="The GPU had nothing queued for 81 % of the window: 1,180 launches a step, each kernel done in 2.1 us.",
        severity=Severity.CRITICAL,
        confidence=0.9,
        gain=Gain(0.19, 4.9, 4.1, 3.2, 5.0),
        same_cause_as=None,
        evidence=(
            Evidence("queue-empty gaps", 0.81, "share of window", DECODE),
            Evidence("launches", 1180.0, "per step"),
            Evidence("median kernel", 2.1, "us"),
            Evidence("host time between launches", 25_300.0, "ns"),
        ),
        fixes=(
            Fix(
                "pytorch", "torch.compile(model, mode='reduce-overhead')", "one graph launch replaces a step's launches"
            ),
            Fix("vllm", "drop --enforce-eager", "decode steps are then captured as CUDA graphs"),
            Fix("sglang", "drop --disable-cuda-graph", "as above"),
            Fix("tensorrt-llm", "cuda_graph_config: {enable_padding: true}", "pads batches to a captured size"),
            Fix("transformers", "cache_implementation='static' with torch.compile", "fixed shapes can be captured"),
        ),
        verify="Record again: graph launches equal steps, and queue-empty gaps fall under 5 % of the window.",
    )


def _graphs_off() -> RankedFinding:
    return RankedFinding(
        rule="cudagraph-off",
        title="CUDA graphs are off",
        summary="No graph launch in 8 decode steps of 1,180 launches each.",
        severity=Severity.CRITICAL,
        confidence=0.9,
        gain=None,
        same_cause_as="host-dispatch-bound",
        evidence=(Evidence("graph launches", 0, "per step"),),
        fixes=(Fix("vllm", "drop --enforce-eager", "captures decode steps"),),
        verify="graph launches equal steps",
    )


def _module_load() -> RankedFinding:
    return RankedFinding(
        rule="lazy-module-load",
        title="Kernels are loaded inside the steps",
        summary="3 module loads inside steps held the launching thread for 14.1 ms.",
        severity=Severity.MEDIUM,
        confidence=0.6,
        gain=Gain(0.0141, 1.063, 1.041, 1.03, 1.05),
        same_cause_as=None,
        evidence=(Evidence("module loads", 3, "in the window", DECODE),),
        fixes=(Fix("system", "CUDA_MODULE_LOADING=EAGER", "loads every kernel at start"),),
        verify="no cuLibraryLoadData inside a step",
        after_first_speedup=1.09,
    )


def _timeline() -> tuple[TimelineBin, ...]:
    return tuple(
        TimelineBin(index * 1_196_500, 0.12 + 0.1 * (index % 5 == 0), 0.0, 0.3 if index % 25 == 0 else 0.0)
        for index in range(200)
    )


def _kernels() -> tuple[KernelRow, ...]:
    return (
        KernelRow("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "gemm", 904, 11_300_000, 12_500, 0.305),
        KernelRow(
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<BinaryFunctor>>",
            "elementwise",
            3_712,
            7_900_000,
            2_100,
            0.213,
        ),
        KernelRow(
            "flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>",
            "attention",
            128,
            3_000_000,
            23_100,
            0.081,
        ),
    )
