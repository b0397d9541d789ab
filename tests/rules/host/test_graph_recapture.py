from __future__ import annotations

from tests.support.trace_builder import GEMM, HEAD_GEMM, Program
from tests.support.verdicts import Clinic

RULE = "graph-recapture"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long>, std::array<char*, 1ul>>(int)"


def replayed_step(program: Program) -> None:
    program.silence(10)
    program.copy("HtoD pinned", 64)
    program.graph([(GEMM, 10.0)] * 40 + [(HEAD_GEMM, 20.0)])
    program.wait()


def capture(program: Program) -> None:
    program.call("cudaStreamBeginCapture", 5)
    program.call("cudaStreamEndCapture", 200)
    program.call("cudaGraphInstantiate", 800)


def test_fires_when_steps_capture_again(clinic: Clinic) -> None:
    program = Program()
    for step in range(10):
        replayed_step(program)
        if step % 2:
            capture(program)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] > 1.5


def test_captures_at_the_first_use_of_each_size_are_a_remark(clinic: Clinic) -> None:
    program = Program()
    for step in range(60):
        if step in {0, 3, 7, 12}:
            capture(program)
        replayed_step(program)
    finding = clinic.verdicts(program).finding(RULE)
    assert finding["severity"] == "info"
    assert "at the first use of each size" in finding["title"]
    assert "in none after the first" in finding["summary"]


def test_sizes_that_go_on_to_come_are_no_warm_up(clinic: Clinic) -> None:
    program = Program()
    for step in range(60):
        if step in {0, 3, 7, 40}:
            capture(program)
        replayed_step(program)
    assert clinic.verdicts(program).finding(RULE)["severity"] != "info"


def test_is_silent_on_captures_before_the_steps(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        capture(program)
    for _ in range(20):
        replayed_step(program)
    assert RULE not in clinic.verdicts(program).found


def recaptured_step(program: Program) -> None:
    """A graph is captured, launched once and thrown away, as with a torch.cuda.CUDAGraph made inside the step."""
    program.wait("cudaDeviceSynchronize")
    program.call("cudaFree", 150)
    program.launch(FILL, 2.0)  # the state of the random generator
    program.call("cudaStreamBeginCapture", 2)
    for _ in range(60):
        program.silence(20)
        program.call("cudaLaunchKernel", 4)
        program.call("cuKernelSetAttribute", 0.2)
    program.call("cudaStreamEndCapture", 5)
    program.call("cudaGraphInstantiate", 400)
    program.graph([(GEMM, 8.0)] * 60, host_us=250.0)


def test_what_is_launched_under_capture_goes_with_the_capture(clinic: Clinic) -> None:
    program = Program()
    for _ in range(12):
        recaptured_step(program)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert not verdicts.found & {"capture-fault", "lazy-module-load"}
    gain = verdicts.finding(RULE)["gain"]
    # 2.6 ms a step, of which the graph itself takes 0.5
    assert 3.0 < gain["speedup_expected"] < gain["speedup_bound"] < 6.0
