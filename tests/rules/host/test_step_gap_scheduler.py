from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from doctor.convert.conversion import convert_report
from tests.support import engine_texts as texts
from tests.support.samples import SAMPLES
from tests.support.trace_builder import GEMM, LAYER, Program, decode_step, forward_pass
from tests.support.traces import shared_trace
from tests.support.verdicts import Clinic, verdicts_on

RULE = "step-gap-scheduler"
BACKWARD = 4321
"""Thread on which autograd runs the backward pass."""
WITHOUT_WORK = ("DELETE FROM NVTX_EVENTS", "DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1")
"""Takes out what shows that a pause is a step's own work: the names, and the upload with which a step begins."""
IN_PIECES = (
    "CREATE TABLE whole AS SELECT * FROM OSRT_API",
    "DELETE FROM OSRT_API",
    """INSERT INTO OSRT_API SELECT start + place * 5000000, start + place * 5000000 + 4990000, globalTid, nameId, 0
    FROM whole, (SELECT 0 AS place UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5)""",
)
"""Waits of 5 ms, six for each that was there."""


def test_fires_and_names_the_range_that_covers_the_pause(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        with program.annotation("build_batch"):
            program.silence(20_000)
        decode_step(program)
    verdicts = clinic.verdicts(program)
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert "build_batch" in finding["title"]
    # 20 of 21 ms a step are pause
    assert finding["gain"]["speedup_expected"] > 4
    assert verdicts.evidence(RULE, "longest pause") > 19.9


def test_fires_on_a_wait_for_data_where_the_backward_pass_launches_from_a_thread_of_its_own(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        with program.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
            program.silence(20_000)
        decode_step(program)
        with program.thread(BACKWARD):
            for _ in range(2):  # more launches than the forward pass, so this is the thread that launches most
                forward_pass(program)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert "DataLoader" in verdicts.finding(RULE)["title"]
    assert "num_workers" in verdicts.finding(RULE)["fixes"][0]["setting"]
    # 20 of 22 ms a step are the wait for data
    assert verdicts.finding(RULE)["gain"]["speedup_expected"] > 3


def test_a_range_that_holds_far_more_than_the_pauses_is_not_what_takes_their_time(clinic: Clinic) -> None:
    program = Program()
    with program.annotation("answer"):
        for _ in range(5):
            program.silence(20_000)
            decode_step(program)
    finding = clinic.verdicts(program).finding(RULE)
    assert "inside `answer`" in finding["summary"]
    assert "takes" not in finding["title"]


def test_a_recording_of_three_steps_promises_what_a_loop_wins(clinic: Clinic) -> None:
    """Two pauses of 20 ms between three steps of 1.1 ms: in a loop each step has one."""
    program = Program()
    for step in range(3):
        if step:
            with program.annotation("make_batch"):
                program.silence(20_000)
        decode_step(program)
    gain = clinic.verdicts(program).finding(RULE)["gain"]
    assert gain["seconds"] == pytest.approx(0.040, rel=0.05)
    assert gain["speedup_bound"] >= 21.1 / 1.1


def test_at_most_the_input_that_is_made_in_a_pause_need_not_be_copied(clinic: Clinic) -> None:
    """8 MiB go up behind each pause in 4 ms; a step takes 1.1 ms."""
    program = Program()
    for _ in range(5):
        with program.annotation("make_batch"):
            program.silence(20_000)
        program.copy("HtoD pageable", 8 * 2**20, gigabytes_per_s=2.1)
        decode_step(program)
    gain = clinic.verdicts(program).finding(RULE)["gain"]
    assert gain["speedup_expected"] < 25.1 / 5.1 * 1.3
    assert gain["speedup_bound"] >= 25.1 / 1.1


def test_fires_without_any_annotation(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        program.silence(20_000)
        decode_step(program)
    assert clinic.verdicts(program).first == RULE


def test_is_silent_when_the_pause_hides_behind_a_full_queue(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        decode_step(program)
        program.launch(GEMM, 40_000)
        program.silence(20_000)
    verdicts = clinic.verdicts(program)
    assert RULE not in verdicts.found
    assert "had work meanwhile" in verdicts.ruled_out[RULE]


def test_owns_short_pauses_between_graphs_that_hold_whole_steps(clinic: Clinic) -> None:
    program = Program()
    for _ in range(8):
        program.graph([(GEMM, 10)] * 40)
        program.wait()
        program.silence(300)  # shorter than what counts as a pause among eager launches
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["gain"]["speedup_bound"] > 1.5  # 300 us of pause beside 400 us of work
    assert "host-dispatch-bound" not in verdicts.found


def test_a_marked_step_begins_before_its_first_launch(clinic: Clinic) -> None:
    programs = []
    for mark in ("ProfilerStep#6", "anything"):
        program = Program()
        with program.annotation(mark):
            with program.annotation("image_processing.py(235): preprocess", "python_function"):
                program.silence(40_000)
            forward_pass(program)
            program.wait()
        programs.append(clinic.verdicts(program))
    marked, unmarked = programs
    assert marked.first == RULE
    assert "preprocess" in marked.finding(RULE)["title"]
    assert marked.document["window"]["chosen_by"].endswith(
        "from the start of the marked step; steps by nvtx:ProfilerStep##"
    )
    # 40 of 41.5 ms are before the first launch, in the only step that there is
    assert "does it come back" in marked.finding(RULE)["title"] or "in every step?" in marked.finding(RULE)["title"]
    assert marked.finding(RULE)["gain"] is None
    assert "five steps or more" in marked.finding(RULE)["verify"]
    assert RULE not in unmarked.found


def test_leaves_the_same_pauses_among_eager_launches_to_the_dispatch(clinic: Clinic) -> None:
    program = Program()
    for _ in range(8):
        decode_step(program)
        program.wait()
        program.silence(300)
    assert RULE not in clinic.verdicts(program).found


def test_is_low_at_most_for_a_pause_that_comes_once(clinic: Clinic) -> None:
    program = Program()
    for step in range(6):
        if step == 3:
            program.silence(20_000)
        decode_step(program)
    assert clinic.verdicts(program).finding(RULE)["severity"] == "low"


def test_is_silent_while_another_thread_of_the_process_launches(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        decode_step(program)
        with program.thread(5151):
            for _ in range(400):
                program.silence(10)
                program.launch(GEMM, 3)
    assert RULE not in clinic.verdicts(program).found


def test_reads_host_and_device_time_of_steps_out_of_a_log(clinic: Clinic) -> None:
    verdicts = clinic.told(texts.lines(texts.tensorrt_iteration(place, 8, 12.0, 7.0) for place in range(40)))
    assert verdicts.first == RULE
    assert round(verdicts.evidence(RULE, "device idle between steps"), 2) == 0.42
    assert (
        RULE
        not in clinic.told(texts.lines(texts.tensorrt_iteration(place, 8, 12.0, 11.6) for place in range(40))).found
    )


def test_one_pause_is_told_in_the_singular(clinic: Clinic) -> None:
    program = Program()
    decode_step(program)
    program.silence(20_000)
    decode_step(program)
    assert "fell silent 1 time," in clinic.verdicts(program).finding(RULE)["summary"]


def test_pauses_between_all_of_three_steps_are_no_chance(clinic: Clinic) -> None:
    program = Program()
    for _ in range(3):
        with program.annotation("build_batch"):
            program.silence(60_000)
        decode_step(program)
    verdicts = clinic.verdicts(program)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["severity"] == "critical"


def _rounds(*layer_counts: int) -> Program:
    """Passes over so many layers, which nothing marks; an operator of the host works between two of them."""
    program = Program()
    for place, count in enumerate(layer_counts):
        if place:
            with program.annotation("aten::triu", "cpu_op"):
                program.silence(20_000)
        for _ in range(count):
            for kernel in (*LAYER, GEMM, GEMM):
                program.silence(12)
                program.launch(kernel, 40)
    return program


def test_pauses_between_three_rounds_alike_come_back_though_nothing_marks_a_round(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(_rounds(12, 12, 12))
    assert "maybe layers" in verdicts.document["window"]["chosen_by"]
    assert verdicts.finding(RULE)["severity"] == "critical"


def test_two_pauses_between_unlike_work_may_be_chance(clinic: Clinic) -> None:
    assert clinic.verdicts(_rounds(4, 12, 20)).finding(RULE)["severity"] in {"low", "medium"}


def test_pauses_without_a_sign_of_work_are_a_question_that_promises_nothing(clinic: Clinic) -> None:
    verdicts = clinic.verdicts(_unnamed())
    finding = verdicts.finding(RULE)
    assert verdicts.first == RULE
    assert finding["severity"] == "medium"
    assert finding["gain"] is None
    assert "without requests?" in finding["title"]
    assert "running and waiting ones" in finding["verify"]
    assert any("record_function" in fix["setting"] for fix in finding["fixes"])


def test_requests_that_run_in_the_log_beside_the_trace_answer_the_question(clinic: Clinic) -> None:
    trace = _unnamed().write(clinic.folder / "trace.json")
    loaded = clinic.told(trace, texts.lines(texts.vllm_status(10 * place, 8) for place in range(20)))
    assert loaded.finding(RULE)["severity"] == "critical"
    assert loaded.finding(RULE)["gain"]["speedup_expected"] > 4
    idle = clinic.told(trace, texts.lines(texts.vllm_status(10 * place, 0) for place in range(20)))
    assert idle.finding(RULE)["gain"] is None


def test_operators_on_the_host_answer_the_question(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        decode_step(program)
        with program.annotation("aten::softmax", "cpu_op"):
            program.silence(2_000)
        program.silence(18_000)
    assert clinic.verdicts(program).finding(RULE)["severity"] == "critical"


def test_an_operator_that_fills_the_pauses_is_told_to_work_on_the_device(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        decode_step(program)
        with program.annotation("aten::mm", "cpu_op"):
            program.silence(7_000)
    finding = clinic.verdicts(program).finding(RULE)
    assert finding["title"] == "The host computes while the device waits: aten::mm takes 7.01 ms each time"
    assert finding["fixes"][0]["setting"].startswith("keep on the device what this operator works on")


def test_python_frames_answer_the_question_both_ways(clinic: Clinic) -> None:
    working, waiting = Program(), Program()
    for program, frame in ((working, "scheduler.py(310): _schedule_running"), (waiting, "queue.py(154): get")):
        for _ in range(5):
            with program.annotation(frame, "python_function"):
                program.silence(20_000)
            decode_step(program)
    assert clinic.verdicts(working).finding(RULE)["severity"] == "critical"
    finding = clinic.verdicts(waiting).finding(RULE)
    assert finding["severity"] == "low"
    assert finding["gain"] is None


def test_results_that_nobody_fetched_are_no_want_of_requests(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        forward_pass(program)
        program.silence(20_000)
    assert clinic.verdicts(program).finding(RULE)["severity"] == "critical"


def test_a_step_that_has_begun_waits_for_its_host(capfd: pytest.CaptureFixture[str]) -> None:
    # nothing fills the 30 ms of Python in this PyTorch trace, but the positions of the step went up right before
    verdicts = verdicts_on(shared_trace("h200/hostgap-sick.pt.trace.json.gz"), capfd)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["severity"] == "critical"


def test_pauses_add_up_to_no_more_than_the_window_where_layers_count_as_steps(clinic: Clinic) -> None:
    program = Program()
    for _ in range(5):
        program.silence(50_000)
        for _ in range(8):
            for kernel in LAYER:
                program.silence(12)
                program.launch(kernel, 3)
        program.wait("cudaDeviceSynchronize")
    verdicts = clinic.verdicts(program)
    said = re.search(r"fell silent \d+ times, for ([\d.]+) ms in all", verdicts.finding(RULE)["summary"])
    assert said is not None
    assert float(said[1]) / 1e3 <= verdicts.document["window"]["seconds"]


def test_says_that_the_thread_waits_where_the_operating_system_shows_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    verdicts = verdicts_on(_with_waits(tmp_path, "sem_wait"), capfd)
    assert verdicts.first == RULE
    assert "waiting in sem_wait for another thread" in verdicts.finding(RULE)["summary"]
    assert verdicts.evidence(RULE, "the thread in sem_wait") > 0.95
    assert verdicts.finding(RULE)["severity"] == "critical"  # `schedule` covers the pauses: it is its own work


def test_a_server_that_waits_for_requests_is_asked_for_its_load(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    verdicts = verdicts_on(_with_waits(tmp_path, "sem_wait", *WITHOUT_WORK), capfd)
    finding = verdicts.finding(RULE)
    assert finding["severity"] == "low"
    assert finding["gain"] is None
    assert "for another thread or for requests" in finding["summary"]
    assert finding["title"].endswith("it waits, for requests or for another thread")


def test_a_sleep_as_long_as_the_pause_is_the_loops_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing wakes a sleep when a request comes."""
    verdicts = verdicts_on(_with_waits(tmp_path, "clock_nanosleep", *WITHOUT_WORK), capfd)
    assert verdicts.first == RULE
    assert verdicts.finding(RULE)["severity"] == "medium"
    assert verdicts.finding(RULE)["title"].endswith("it sleeps once each time, does it poll?")


def test_many_sleeps_in_a_pause_are_the_want_of_requests(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    verdicts = verdicts_on(_with_waits(tmp_path, "clock_nanosleep", *WITHOUT_WORK, *IN_PIECES), capfd)
    assert verdicts.finding(RULE)["severity"] == "low"
    assert "for want of requests" in verdicts.finding(RULE)["title"]


def test_a_thread_that_does_not_wait_in_the_operating_system_works(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    others = "UPDATE OSRT_API SET globalTid = globalTid + 1"
    assert (
        verdicts_on(_with_waits(tmp_path, "sem_wait", *WITHOUT_WORK, others), capfd).finding(RULE)["severity"]
        == "critical"
    )


def test_the_interpreter_lock_is_no_want_of_requests(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    finding = verdicts_on(_with_waits(tmp_path, "pthread_cond_timedwait", *WITHOUT_WORK, *IN_PIECES), capfd).finding(
        RULE
    )
    assert finding["severity"] == "critical"
    assert "interpreter lock" in finding["summary"]


def _unnamed() -> Program:
    """Steps that fetch their results, and 20 ms behind each of which nothing is known."""
    program = Program()
    for _ in range(5):
        program.silence(20_000)
        decode_step(program)
    return program


def _with_waits(folder: Path, name: str, *changes: str) -> Path:
    """A real recording whose thread is made to wait in the operating system where it ran Python between steps."""
    export = folder / "waiting.sqlite"
    convert_report(SAMPLES / "scheduler-pause" / "hostgap-sick.nsys-rep", export)
    with closing(sqlite3.connect(export)) as connection:
        connection.execute("INSERT INTO StringIds VALUES (99999, ?)", (name,))
        connection.execute("DROP TABLE IF EXISTS OSRT_API")
        connection.execute(
            "CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, returnValue INTEGER)"
        )
        connection.execute(
            """INSERT INTO OSRT_API SELECT start + 10000, end - 10000, globalTid, 99999, 0 FROM NVTX_EVENTS
            WHERE text = 'schedule' OR textId IN (SELECT id FROM StringIds WHERE value = 'schedule')"""
        )
        for change in changes:
            connection.execute(change)
        connection.commit()
    return export
