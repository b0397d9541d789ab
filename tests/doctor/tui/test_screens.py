"""Each screen at a real recording: what a person presses and then reads."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
from textual.widgets import DataTable, Input, OptionList, TextArea

from doctor.tui.snapshot import Phase
from doctor.tui.widgets.diagnosis.finding_page import FindingPage
from doctor.tui.widgets.diagnosis.framework_bar import FrameworkBar
from doctor.tui.widgets.navigation import NavigationBar
from doctor.tui.widgets.timeline.canvas import TimelineCanvas
from tests.support.samples import sample, trace_of
from tests.support.terminal_app import Stage, Terminal, at_a_terminal, terminal


def test_the_first_screen_names_the_fault_the_win_and_the_setting() -> None:
    async def scene() -> None:
        async with terminal(trace_of(sample("pageable-copies"))) as person:
            shown = await person.sees("keep on the device")
            assert "CRITICAL" in shown
            assert "Copies go through pageable host memory" in shown
            assert "To win" in shown
            assert "Change" in shown
            assert "Verify" in shown

    at_a_terminal(scene)


def test_findings_are_gone_through_and_fixes_copied(large: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.sees("idle with an empty queue")
        await person.press("f")
        await person.sees("drop --enforce-eager")
        await person.press("c")
        assert person.app.clipboard.startswith("drop --enforce-eager")
        await person.press("down")
        page = person.app.screen.query_one(FindingPage)
        await person.until(lambda: "vLLM" in str(page.fix_text()), "the framework stays chosen")
        await person.sees("graph launches per step")

    large.play(scene)


def test_a_finding_leads_to_its_place_and_back(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.sees("The GPU waits for kernel launches")
        await person.press("enter")
        shown = await person.sees("194 us  Nothing runs here")
        assert "1 host-dispatch-bound" in shown
        await person.press("escape")
        await person.sees("CRITICAL")

    small.play(scene)


def test_zooming_into_a_wait_goes_to_the_work_that_ends_it(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("enter")
        await person.sees("194 us  Nothing runs here")
        await person.press("plus")
        shown = await person.settled()
        assert "Nothing runs here" not in shown
        assert re.search(r"launched by cu\w+ on thread \d+, .* before it ran", shown)
        await person.press("plus", "plus", "plus", "plus", "left", "left")
        assert "194 us  Nothing runs here" in await person.settled()

    small.play(scene)


def test_a_long_name_keeps_both_ends_beside_all_screens(tmp_path: Path) -> None:
    trace = tmp_path / "qwen2-7b-decode-batch1-rank0-2026-11-30.pt.trace.json"
    trace.write_text("{}")

    async def scene() -> None:
        for width, name in ((80, "qwen2-7b-d…026-11-30"), (200, trace.name)):
            async with terminal(trace, size=(width, 24)) as person:
                first = person.text.splitlines()[0]
                assert first.endswith(name), first
                assert all(f"{number} " in first for number in range(1, 9))

    at_a_terminal(scene)


def test_zooming_into_a_gap_ends_at_the_kernel_that_ends_it(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("enter")
        await person.sees("194 us  Nothing runs here")
        for _ in range(9):
            await person.press("plus")
            await person.settled()
        assert re.search(r"GPU0 str 7 +▏\S{3,}", person.text), person.text

    small.play(scene)


def test_the_timeline_is_zoomed_until_a_kernel_can_be_read(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("2", "0")
        await person.sees("steps .*step 0")
        canvas = person.app.screen.query_one(TimelineCanvas)
        await person.press("slash")
        await person.type("flash_fprop")
        await person.press("enter", "escape")
        await person.sees(r"grid \d+ x \d+, attention")
        while not canvas.shows_selected_by_name:
            await person.press("plus")
            await person.settled()
        assert re.search("GPU0 str 7 +[▏◂]cudnn", person.text)
        await person.press("0")
        await person.sees("view 313 ms")
        for key in ("d", "a", "left", "right", "down", "up", "minus", "n", "p", "z", "home"):
            await person.press(key)
            await person.settled()

    small.play(scene)


def test_the_mouse_zooms_chooses_and_drags(large: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("2", "0")
        await person.sees("view 313 ms")
        canvas = person.app.screen.query_one(TimelineCanvas)
        await person.scroll_up(canvas, (60, 5))
        await person.sees("view 224 ms")
        before = canvas.view
        await person.drag(canvas, (100, 5), (60, 5))
        await person.settled()
        assert canvas.view.start_ns > before.start_ns
        assert canvas.view.length_ns == before.length_ns

    large.play(scene)


def test_the_mouse_changes_screens_and_frameworks(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.sees("idle with an empty queue")
        await person.click(person.app.screen.query_one(FrameworkBar), (14, 0))
        await person.sees(r"\[vLLM\]")
        await person.click(person.app.screen.query_one(NavigationBar), (22, 0))
        await person.sees("34 of 34 kernel names")

    small.play(scene)


def test_kernels_are_sorted_filtered_grouped_and_found(large: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("3")
        await person.sees("34 of 34 kernel names")
        await person.press("s")
        await person.sees("by time")
        await person.press("slash")
        await person.type("attention")
        await person.sees("[23] of 34 kernel names")
        await person.press("escape", "g")
        await person.sees("families")
        await person.press("enter")
        shown = await person.sees("of 34 kernel names")
        assert "elementwise" in shown
        await person.press("enter")
        await person.sees(r"2 Timeline.*\n(.*\n)*.*starts .* into the window")

    large.play(scene)


def test_steps_tell_prefill_from_decode_and_lead_to_the_timeline(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("4")
        shown = await person.sees(r"decode +8 steps")
        assert "prefill  prefill" in shown
        await person.press("s", "enter")
        await person.sees("step 7")
        assert person.app.current_mode == "timeline"

    small.play(scene)


def test_memory_shows_pageable_copies_and_what_the_driver_held(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("memory")
        shown = await person.sees("pageable !")
        assert "top 1.85 GiB" in shown
        assert "NVIDIA H200" in shown

    small.play(scene)


def test_a_query_is_run_read_only_and_its_answer_exported(large: Stage, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"

    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("6")
        await person.sees("device_op ")
        query = person.app.screen.query_one("#query", TextArea)
        query.text = "SELECT step_id, start_ns FROM step ORDER BY step_id"
        await person.press("ctrl+r")
        await person.sees("8 rows")
        await person.press("ctrl+s")
        person.app.screen.query_one(Input).value = str(target)
        await person.press("enter")
        await person.sees("8 rows in")
        query.text = "DROP TABLE step"
        await person.press("ctrl+r")
        await person.sees("the case is open for reading only")
        query.text = "SELECT nothing FROM nowhere"
        await person.press("ctrl+r")
        await person.sees("Catalog Error")

    large.play(scene)
    assert pq.read_table(target).num_rows == 8


def test_escape_leaves_the_query_so_that_digits_change_screens_again(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("6")
        await person.sees("device_op |esc Leave query")
        query = person.app.screen.query_one("#query", TextArea)
        await person.until(lambda: bool(query.has_focus), "focus")
        assert "esc Leave query" in person.text
        text = query.text
        await person.press("escape", "3")
        await person.sees("34 of 34")
        assert query.text == text

    small.play(scene)


def test_vitals_show_the_devices_or_say_why_there_are_none() -> None:
    async def scene() -> None:
        async with terminal() as person:
            await person.press("7")
            await person.sees("host: ")
            await person.sees("No device to ask: |SM clock")

    at_a_terminal(scene)


def test_the_engine_is_offered_with_its_conditions_and_asks_for_a_model() -> None:
    async def scene() -> None:
        async with terminal() as person:
            await person.press("8")
            shown = await person.sees("the KV cache of each request grows")
            assert "no-cuda-graphs" in shown
            await person.press("r")
            await person.sees("Name the folder of a checkpoint first")

    at_a_terminal(scene)


def test_an_engine_that_fails_says_so_on_the_screen(tmp_path: Path) -> None:
    async def scene() -> None:
        async with terminal() as person:
            await person.press("8")
            await person.sees("the KV cache of each request grows")
            person.app.screen.query_one("#model", Input).value = str(tmp_path)
            person.app.screen.query_one(OptionList).focus()
            await person.press("r")
            await person.sees(r"--- ended with \d")
            await person.press("d")
            await person.sees("There is no recording yet")

    at_a_terminal(scene)


def test_other_evidence_is_opened_and_a_wrong_file_is_named(launch_bound: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.bin").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))

    async def scene() -> None:
        async with terminal() as person:
            await person.sees("Nothing is open")
            for path, expected in ((tmp_path / "wrong.bin", "is an image"), (launch_bound, "CRITICAL")):
                await person.press("o")
                person.app.screen.query_one(Input).value = str(path)
                await person.press("enter")
                await person.sees(expected)
            assert person.app.snapshot.phase is Phase.DONE

    at_a_terminal(scene)


def test_keys_are_listed_and_the_palette_knows_the_screens(large: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("2", "question_mark")
        shown = await person.sees("command palette")
        assert "Zoom in" in shown
        await person.press("escape", "ctrl+p")
        await person.type("steps")
        await person.sees("Go to the screen Steps")
        await person.press("enter")
        await person.sees("By time or length")

    large.play(scene)


def test_both_themes_paint_the_same_text(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        dark = await person.sees("CRITICAL")
        await person.press("ctrl+t")
        assert not person.app.current_theme.dark
        assert await person.sees("CRITICAL") == dark

    small.play(scene)


def test_tables_take_the_focus_so_that_keys_work_at_once(small: Stage) -> None:
    async def scene(person: Terminal) -> None:
        await person.go("diagnosis")
        await person.press("3")
        await person.sees("34 of 34")
        table = person.app.screen.query_one(DataTable)
        await person.until(lambda: bool(table.has_focus), "focus")
        await person.press("down")
        assert table.cursor_row == 1

    small.play(scene)
