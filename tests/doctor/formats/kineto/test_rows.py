from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.formats.kineto.columns import texts, trailing_number, whole_numbers
from doctor.formats.kineto.device_work import copy_kinds, short_kernel_name
from doctor.formats.kineto.times import end_column, nanosecond_column, nanoseconds

MICROSECONDS = st.decimals(-(10**15), 10**15, allow_nan=False, allow_infinity=False, places=6)


@given(st.lists(MICROSECONDS, min_size=1))
def test_times_are_exact_to_the_nanosecond_with_any_number_of_digits(values: list[Decimal]) -> None:
    column = nanosecond_column([str(value).encode() for value in values])
    assert column.to_pylist() == [int((value * 1000).to_integral_value(ROUND_HALF_EVEN)) for value in values]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1712195495519689.047", 1712195495519689047),
        (b"-0.5", -500),
        (b"0.0005", 0),
        (b"1e3", 1_000_000),
        (b'"12.25"', 12250),
        (b"", None),
        (b"null", None),
        (b"{}", None),
        (b"1e400", None),
        (b"9223372036854775808", None),
    ],
)
def test_a_time_that_is_no_number_of_64_bits_is_unknown(text: bytes, expected: int | None) -> None:
    assert nanoseconds(text) == expected
    assert nanosecond_column([text, b"1"]).to_pylist() == [expected, 1000]


def test_an_end_beyond_64_bits_is_unknown() -> None:
    starts, durations = pa.array([2**63 - 1, 5, None, 7], pa.int64()), pa.array([1, 6, 7, None], pa.int64())
    assert end_column(starts, durations).to_pylist() == [None, 11, None, None]


def test_numbers_come_as_numbers_or_texts_and_anything_else_is_unknown() -> None:
    values = [1, "2", 3.0, None, "x", [4], {"a": 1}, 2**70, "0x7", True, float("inf")]
    assert whole_numbers(values).to_pylist() == [1, 2, 3, None, None, None, None, None, None, 1, None]
    assert whole_numbers([1, 2, None]).to_pylist() == [1, 2, None]


def test_texts_are_stored_once_and_anything_else_is_unknown() -> None:
    column = texts(["a", "b", "a", None, 7, ["x"], "b"])
    assert column.to_pylist() == ["a", "b", "a", None, None, None, "b"]
    assert len(texts(["a"] * 1000).dictionary) == 1


def test_rows_are_numbered_by_the_end_of_their_name() -> None:
    assert [trailing_number(value) for value in ("stream 7 ", 7, "7", "PyTorch Profiler (0)", "Spans", None)] == [
        7,
        7,
        7,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::gather_kernel<4, at::native::FillFunctor<float>>(int, float)", "gather_kernel"),
        ("void at::native::(anonymous namespace)::reduce<512, 1, f(int)::{lambda(int)#1}>(A<B>)", "reduce"),
        ("void (anonymous namespace)::with_index<int, g()::{lambda()#1}>(int)", "with_index"),
        ("ncclDevKernel_AllReduce_Sum(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_Sum"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("sm90_xmma_gemm_bf16<A<B<(C)0>>>::kernel", "kernel"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*)", "cross_device_reduce_1stage"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1", "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1"),
        ("", ""),
        (None, None),
    ],
)
def test_short_names_drop_types_namespaces_and_parameters(name: str | None, short: str | None) -> None:
    assert short_kernel_name(name) == short


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "", ("htod", "pageable", "device")),
        ("Memcpy DtoH (Device -> Pinned)", "", ("dtoh", "device", "pinned")),
        ("Memcpy DtoD (Device -> Device)", "", ("dtod", "device", "device")),
        ("Memcpy PtoP (Device -> Device)", "", ("ptop", "device", "device")),
        ("Memcpy HtoD (Host -> Device)", "HtoD", ("htod", None, "device")),
        ("CopyDeviceToHost", "", ("dtoh", "device", None)),
        ("CopyDeviceToDevice", "", ("dtod", "device", "device")),
        ("Memcpy", "DtoH", ("dtoh", "device", None)),
        ("something else", "", (None, None, None)),
    ],
)
def test_copies_are_told_by_their_name(name: str, kind: str, expected: tuple[str | None, ...]) -> None:
    assert copy_kinds(name, kind) == expected
