from __future__ import annotations

from tests.support.trace_builder import ADD, FLASH, GEMM, HEAD_GEMM, LAYER, Program, decode_step, forward_pass
from tests.support.verdicts import Clinic

RULE = "host-dispatch-bound"
BACKWARD = "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel"


def test_fires_when_kernels_are_shorter_than_their_launches(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        with program.annotation("decode"):
            decode_step(program, kernel_us=3, silence_us=12)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert finding["severity"] == "critical"
    # 65 launches of 16 us a step against 3 us kernels: the device can be kept busy five times as well at most
    assert 1.5 < finding["gain"]["speedup_expected"] <= finding["gain"]["speedup_bound"] < 6
    assert verdicts.evidence(RULE, "launches per step") == 65
    assert {fix["target"] for fix in finding["fixes"]} >= {"pytorch", "vllm", "sglang", "tensorrt-llm", "transformers"}


def test_carries_graphs_off_and_tiny_kernels_under_the_same_gain(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, kernel_us=3, silence_us=12, layers=32)
    verdicts = clinic.verdicts(program)
    for follower in ("cudagraph-off", "tiny-kernels"):
        finding = verdicts.finding(follower)
        assert finding["same_cause_as"] == RULE
        assert finding["gain"] is None


def test_a_kernel_that_is_loaded_at_its_first_use_is_no_slow_launch(clinic: Clinic) -> None:
    # six steps of 4 ms on a busy device; in the first a query about a kernel, and a launch, load code
    program = Program()
    for step in range(6):
        decode_step(program, kernel_us=60, silence_us=12)
        if step == 0:
            program.call("cudaFuncGetAttributes", 24_000)
            program.launch(GEMM, 60, host_us=2_400)
    assert RULE not in clinic.verdicts(program).found


def test_is_silent_when_the_queue_stays_full(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program, kernel_us=60, silence_us=12)
    assert RULE not in clinic.verdicts(program).found


def test_is_silent_when_graphs_replace_the_launches(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        program.silence(12)
        program.copy("HtoD pinned", 64)
        program.graph([(GEMM, 20.0)] * 64 + [(HEAD_GEMM, 40.0)])
        program.wait()
    assert RULE not in clinic.verdicts(program).found


def test_reports_a_launch_bound_prefill_that_happens_once_as_low_at_most(clinic: Clinic) -> None:
    program = Program()
    for _ in range(200):
        program.silence(12)
        program.launch(GEMM, 3.0)
    for _ in range(6):
        program.silence(5)
        program.copy("HtoD pinned", 64)
        program.graph([(GEMM, 30.0)] * 64 + [(HEAD_GEMM, 60.0)])
        program.wait()
    verdicts = clinic.verdicts(program)
    assert all(finding["severity"] in {"low", "info"} for finding in verdicts.document["findings"])


def test_is_as_grave_in_a_recording_of_one_step_that_is_marked_as_one(clinic: Clinic) -> None:
    program = Program()
    with program.annotation("ProfilerStep#6"):
        forward_pass(program, layers=12)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["severity"] == "critical"
    assert "micro-batch-too-small" not in verdicts.found


def test_is_as_grave_where_one_kernel_is_launched_again_and_again(clinic: Clinic) -> None:
    program = Program()
    for _ in range(200):
        program.silence(90)
        program.launch(GEMM, 2)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["severity"] == "critical"


def test_threads_that_launch_at_the_same_time_are_told_before_what_each_of_them_loads(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(_threads(kernel_us=3))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert finding["severity"] == "critical"
    assert finding["title"].endswith("4 threads launch in each other's way")
    assert "as one batch" in finding["fixes"][0]["setting"]
    loads = verdicts.finding("lazy-module-load")
    assert loads["severity"] == "low"
    assert "once in each thread" in loads["title"]


def test_threads_that_keep_the_device_busy_are_in_nobodys_way(clinic: Clinic) -> None:
    assert clinic.verdicts(_threads(kernel_us=80)).found.isdisjoint({RULE})


def test_a_backward_pass_on_a_thread_of_its_own_is_no_crowd(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        decode_step(program)
        with program.thread(5151):
            forward_pass(program)
    assert "threads" not in clinic.verdicts(program).finding(RULE)["title"]


def _training(thread_count: int) -> Program:
    """Threads that train a model each; the backward passes of all come from one thread, which does most of the work."""
    program = Program()
    for _ in range(25):
        for kernel in (GEMM, ADD, GEMM):
            for thread in range(thread_count):
                with program.thread(9_000 + thread):
                    program.silence(15)
                    program.launch(kernel, 3)
                with program.thread(5_151):
                    for _ in range(2):
                        program.silence(10)
                        program.launch(BACKWARD, 3)
    return program


def test_threads_that_train_at_the_same_time_are_asked_what_they_take_alone(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(_training(4))
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert finding["title"].endswith("5 threads train in each other's way, for how much?")
    assert "backward passes of one process take turns" in finding["summary"]
    assert finding["severity"] == "medium"
    assert finding["gain"] is None
    assert all("as one batch" not in fix["setting"] for fix in finding["fixes"])


def test_a_trainer_is_told_of_the_fused_optimizer_first(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        forward_pass(program)
        for _ in range(60):
            program.silence(12)
            program.launch(BACKWARD, 3)
        program.wait()
    settings = [fix["setting"] for fix in clinic.verdicts(program).finding(RULE)["fixes"]]
    assert "fused=True" in settings[0]
    assert all("sequences" not in setting for setting in settings)


def test_a_decoder_is_told_of_batches_behind_graphs(clinic: Clinic) -> None:
    program = Program()
    for _ in range(6):
        with program.annotation("decode_step"):
            decode_step(program)
    settings = [fix["setting"] for fix in clinic.verdicts(program).finding(RULE)["fixes"]]
    assert "CUDAGraph" in settings[0]
    assert "more sequences in each step" in settings[1]
    assert all("fused=True" not in setting for setting in settings)


def _threads(kernel_us: float) -> Program:
    """Four threads that take a request each, through the same layers; each of them builds a plan at its first use."""
    program = Program()
    for request in range(25):
        for kernel in (ADD, *LAYER, *LAYER, FLASH, HEAD_GEMM):
            together_us = program.now_us
            for thread in range(4):
                with program.thread(9_000 + thread):
                    if not request and kernel == FLASH:
                        program.now_us = together_us
                        with program.annotation("aten::_cudnn_attention_forward", "cpu_op"):
                            program.silence(2_500 + 2_000 * thread)
                            program.launch(kernel, kernel_us, stream=20 + thread)
                    else:
                        program.silence(15)
                        program.launch(kernel, kernel_us, stream=20 + thread)
    return program
