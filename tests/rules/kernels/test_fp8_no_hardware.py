from __future__ import annotations

import pytest

from tests.rules.kernels.test_quant_kernel_legacy import MARLIN, decoding
from tests.support.trace_builder import GEMM
from tests.support.verdicts import Clinic

RULE = "fp8-no-hardware"
FP8_MARLIN = "void fp8_marlin::Marlin<__half, 8, 256, 1, 8, 8, 4, -1>"
WIDEN = "void at::native::vectorized_elementwise_kernel<4, at::native::direct_copy_kernel<c10::Float8_e4m3fn>>"
FP8_PRODUCT = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::float_e4m3_t>>"


def test_fires_on_weight_only_products_and_stays_at_most_medium(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding((FP8_MARLIN,), 200, compute_capability=(8, 0)))
    finding = verdicts.finding(RULE)
    assert finding["severity"] == "medium"
    assert verdicts.evidence(RULE, "weight-only FP8 products") == pytest.approx(800 / 900)
    # a layer falls from 260 to 180 us
    assert finding["gain"]["speedup_expected"] == pytest.approx(260 / 180, rel=0.1)


def test_is_low_where_products_are_as_short_as_in_decode(clinic: Clinic) -> None:
    finding = clinic.verdicts(decoding((FP8_MARLIN,), 30, compute_capability=(8, 0))).finding(RULE)
    assert finding["severity"] == "low"


def test_fires_on_widening_where_the_device_lacks_fp8(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(decoding((WIDEN, GEMM), 60, compute_capability=(8, 6)))
    assert verdicts.evidence(RULE, "kernels that widen FP8") == pytest.approx(60 / 185, rel=0.1)
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] == pytest.approx(180 / 120, rel=0.1)


def test_is_silent_on_fp8_products_of_a_device_that_has_them(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding((FP8_PRODUCT, WIDEN), 40)).found


def test_is_silent_on_four_bit_weights(clinic: Clinic) -> None:
    assert RULE not in clinic.verdicts(decoding((MARLIN,), 90, compute_capability=(8, 0))).found
