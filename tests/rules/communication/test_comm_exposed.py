from __future__ import annotations

from tests.rules.communication.test_straggler_rank import ALL_REDUCE, ranks
from tests.support.trace_builder import GEMM, Program
from tests.support.verdicts import Clinic

RULE = "comm-exposed"


def test_fires_on_transfer_that_nothing_hides(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*ranks([(60.0, 60.0)] * 40, transfer_us=60.0))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    # half of the time is transfer; at 60 % of it the run takes four fifths
    assert 1.15 < finding["gain"]["speedup_expected"] < 1.35


def test_one_rank_cannot_tell_waiting_from_transfer_so_nothing_is_promised_and_the_others_are_asked_for(
    clinic: Clinic,
) -> None:
    finding = clinic.verdicts(ranks([(60.0, 60.0)] * 40, transfer_us=60.0)[0]).finding(RULE)
    assert "one rank alone cannot tell" in finding["summary"]
    assert finding["confidence"] < 0.6
    assert finding["gain"] is None
    assert "all ranks together" in finding["verify"]
    assert {"doctor diagnose rank*.json", "doctor diagnose rank*.nsys-rep"} <= {
        fix["setting"].rsplit("then ", 1)[1] for fix in finding["fixes"]
    }


def test_counts_all_reduces_without_nccl_in_their_name(clinic: Clinic) -> None:
    for name in (
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>",
        "multimem_all_reduce_kernel<c10::BFloat16, 16>",
    ):
        program = Program()
        for _ in range(60):
            program.launch(GEMM, 60)
            program.launch(name, 40)
        verdicts = clinic.verdicts(program)
        assert verdicts.document["vitals"]["exposed_communication"] > 0.35
        assert RULE in verdicts.found


def test_does_not_take_fused_triton_kernels_or_split_k_for_communication(clinic: Clinic) -> None:
    for name in ("triton_red_fused_all_reduce_add_mean_3", "void cublasLt::splitKreduce_kernel<32, 16, int, float>"):
        program = Program()
        for _ in range(60):
            program.launch(GEMM, 60)
            program.launch(name, 40)
        assert clinic.verdicts(program).document["vitals"]["exposed_communication"] == 0


def test_is_silent_when_communication_hides_behind_computing(clinic: Clinic) -> None:
    program = Program()
    for _ in range(60):
        program.launch(ALL_REDUCE, 60, stream=20)
        program.launch(GEMM, 80)
    verdicts = clinic.verdicts(program)
    assert verdicts.document["vitals"]["exposed_communication"] < 0.05
    assert RULE not in verdicts.found


def test_a_little_is_mentioned_at_low_severity(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(*ranks([(88.0, 88.0)] * 40, transfer_us=12.0))
    assert verdicts.finding(RULE)["severity"] == "low"
    assert RULE not in clinic.verdicts(*ranks([(92.0, 92.0)] * 40, transfer_us=8.0)).found
