"""A Python loop over the rows of a batch, each with a wait, is told from layers and experts that wait."""

from __future__ import annotations

from tests.support.trace_builder import GEMM, Program, forward_pass
from tests.support.verdicts import Clinic

RULE = "sync-in-step"
TITLE = "Rows are handled one by one, each with a wait"
ROWS = 32
SAMPLING = (
    "void at::native::softmax_warp_forward<float, float, float, 10, false, false>",
    "void at::native::distribution_elementwise_grid_stride_kernel<float, 4>",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>",
)


def _loop(kernels: tuple[str, ...], steps: int = 6) -> Program:
    program = Program()
    for _ in range(steps):
        program.copy("HtoD pinned", 64)
        forward_pass(program)
        for _ in range(ROWS):
            for kernel in kernels:
                program.silence(8)
                program.launch(kernel, 2)
            program.copy("DtoH pageable", 8)
            program.wait()
    return program


def test_a_loop_over_rows_is_named_with_its_operations_and_its_fix(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(_loop(SAMPLING))
    finding = verdicts.finding(RULE)
    assert finding["title"] == TITLE
    assert "launches the same 4 operations for each" in finding["summary"]
    assert "torch.multinomial(probs, 1)" in finding["fixes"][0]["setting"]


def test_the_win_is_that_of_one_row_in_place_of_all(clinic: Clinic) -> None:
    by_row = clinic.verdicts(_loop(SAMPLING)).finding(RULE)["gain"]
    waits_alone = clinic.verdicts(_loop((GEMM, *SAMPLING))).finding(RULE)["gain"]
    assert by_row["speedup_expected"] > 1.5 * waits_alone["speedup_expected"]


def test_layers_and_experts_that_wait_hold_products_and_are_no_rows(clinic: Clinic) -> None:
    finding = clinic.verdicts(_loop((GEMM, *SAMPLING))).finding(RULE)
    assert finding["title"] != TITLE
    assert "loop over rows" not in finding["summary"]
