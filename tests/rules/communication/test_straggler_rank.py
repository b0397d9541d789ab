from __future__ import annotations

import pytest

from tests.support.device_texts import busy, query_gpu
from tests.support.trace_builder import GEMM, Program
from tests.support.verdicts import Clinic

RULE = "straggler-rank"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def ranks(compute_us: list[tuple[float, float]], transfer_us: float = 10.0) -> tuple[Program, Program]:
    """Two ranks whose collectives end together, whatever each computes before them."""
    programs = Program(rank=0, world_size=2), Program(rank=1, world_size=2, device=1)
    for pair in compute_us:
        for program, own in zip(programs, pair, strict=True):
            program.launch(GEMM, own)
            program.launch(ALL_REDUCE, max(pair) - own + transfer_us)
    return programs


def test_names_the_rank_whose_kernels_take_longer(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*ranks([(30.0, 200.0)] * 40))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert "rank 1" in finding["title"]
    # 210 us a layer, 40 without the extra work
    assert finding["gain"]["speedup_expected"] == pytest.approx(210 / 40, rel=0.1)


def test_does_not_call_waiting_slow_communication(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*ranks([(30.0, 200.0)] * 40))
    assert "comm-exposed" not in verdicts.found
    assert "waiting for the last rank" in verdicts.ruled_out["comm-exposed"]


def test_is_cleared_when_ranks_take_turns(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*ranks([(30.0, 200.0), (200.0, 30.0)] * 20))
    assert RULE not in verdicts.found
    assert "take turns" in verdicts.ruled_out[RULE]


def test_needs_all_ranks(clinic: Clinic) -> None:
    assert RULE in clinic.verdicts(ranks([(30.0, 200.0)] * 40)[0]).not_run


def test_ranks_of_two_hosts_are_put_on_one_clock(clinic: Clinic) -> None:
    programs = ranks([(30.0, 200.0)] * 40)
    for event in programs[1].events:
        event["ts"] += 3_200_000.0
    verdicts = clinic.verdicts(*programs)
    assert "rank 1" in verdicts.finding(RULE)["title"]
    notes = [note for file in verdicts.document["evidence"] for note in file["notes"]]
    assert any("its clock is 3.20 s ahead of the first rank's" in note for note in notes)


def test_samples_of_the_devices_say_why(clinic: Clinic) -> None:
    folder = clinic.folder / "ranks"
    folder.mkdir()
    for place, program in enumerate(ranks([(30.0, 200.0)] * 40)):
        program.write(folder / f"rank{place}.json")
    hot = busy(index="1", clocks__current__sm="700 MHz", clocks_event_reasons__sw_thermal_slowdown="Active")
    samples = [row for pair in zip(busy(), hot, strict=True) for row in pair]
    summary = clinic.told(folder, query_gpu(samples)).finding(RULE)["summary"]
    assert "its SM clock is 700 MHz, the others' 1965; its device is slowed down by heat" in summary


def test_work_that_one_rank_alone_does_is_named_and_asked_for_first(clinic: Clinic) -> None:
    programs = Program(rank=0, world_size=2), Program(rank=1, world_size=2, device=1)
    for _ in range(40):
        for program in programs:
            program.launch(GEMM, 30.0)
        programs[1].launch("extra_statistics_kernel<float>(int)", 170.0)
        programs[0].launch(ALL_REDUCE, 184.0)
        programs[1].launch(ALL_REDUCE, 10.0)
    finding = clinic.verdicts(*programs).finding(RULE)
    assert "work that they do not have: extra_statistics_kernel<float>, 40 launches more" in finding["summary"]
    first = finding["fixes"][0]
    assert first["target"] == "pytorch"
    assert first["setting"].startswith(
        "take out of rank 1's step what it alone launches (extra_statistics_kernel<float>"
    )


def test_the_same_work_at_a_slower_pace_asks_for_the_device(clinic: Clinic) -> None:
    finding = clinic.verdicts(*ranks([(30.0, 200.0)] * 40)).finding(RULE)
    assert "the same kernels, and they take 6.7x as long" in finding["summary"]
    first = finding["fixes"][0]
    assert first["target"] == "system"
    assert first["setting"].startswith("nvidia-smi -i 1 -q -d CLOCK")


def test_a_rank_whose_host_launches_late_is_told_from_one_that_computes_longer(clinic: Clinic) -> None:
    programs = Program(rank=0, world_size=2), Program(rank=1, world_size=2, device=1)
    for _ in range(40):
        for program, silence_us in zip(programs, (5.0, 175.0), strict=True):
            program.silence(silence_us)
            program.launch(GEMM, 30.0)
        programs[0].launch(ALL_REDUCE, 184.0)
        programs[1].launch(ALL_REDUCE, 14.0)
        for program in programs:
            program.wait()
    finding = clinic.verdicts(*programs).finding(RULE)
    assert "its kernels are no slower: its host comes late" in finding["summary"]
    assert "another rank's next time" in finding["summary"]
    assert finding["confidence"] < 0.9
    assert "numactl --cpunodebind" in finding["fixes"][0]["setting"]
