"""The page as people meet it: a real recording, through the command line, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from doctor.cli.main import main
from doctor.diagnosis.tracks import STREAM_KINDS, CloseUp, Span, Track, ZoomableTimeline
from doctor.reports.presentation import Presentation, render
from tests.support import diagnoses
from tests.support.browser import Theme, chromium, opened
from tests.support.samples import sample, trace_of

MOST_BYTES = 2_000_000
AXE_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("html") / "report.html"
    trace = trace_of(sample("fp32"))
    assert main(["diagnose", str(trace), "--format", "html", "-o", str(path), "--no-progress"]) == 0
    return path


def shown_ns(page: Page) -> tuple[int, int]:
    low, high = page.locator("#lanes").evaluate("lanes => [lanes.dataset.from, lanes.dataset.until]")
    return int(low), int(high)


def inked(page: Page, row: int) -> int:
    """Coloured points of one row of the time-line."""
    count = (
        page.locator("#lanes canvas")
        .nth(row)
        .evaluate(
            "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data"
            ".filter((value, place) => place % 4 === 3 && value > 0).length"
        )
    )
    return int(count)


def test_the_page_is_light_opens_offline_and_asks_for_nothing(browser: Browser, report: Path) -> None:
    assert report.stat().st_size < MOST_BYTES
    with opened(browser, report) as (page, heard):
        assert page.locator("h1").inner_text() == "The model computes in fp32"
        assert page.locator("#lanes figure").count() == 4
        assert inked(page, 2) > 1000
        assert heard.requests == [report.as_uri()]
        assert heard.complaints == []


def test_zooming_by_button_by_key_and_by_dragging_narrows_every_row(browser: Browser, report: Path) -> None:
    with opened(browser, report) as (page, heard):
        whole = shown_ns(page)
        page.get_by_role("button", name="Zoom in").click()
        half = shown_ns(page)
        assert half[1] - half[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=1e-3)
        page.locator("#lanes").press("ArrowRight")
        assert shown_ns(page)[0] > half[0]
        page.locator("#lanes").press("0")
        assert shown_ns(page) == whole
        box = page.locator("#lanes .u-over").nth(2).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 10)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 10)
        page.mouse.up()
        page.wait_for_function("length => Number(lanes.dataset.until) < length * 0.51", arg=whole[1])
        dragged = shown_ns(page)
        assert dragged[0] == pytest.approx(whole[1] * 0.25, rel=0.02)
        assert dragged[1] == pytest.approx(whole[1] * 0.5, rel=0.02)
        assert heard.complaints == []


def test_a_finding_leads_to_its_place_where_single_kernels_have_names(browser: Browser, report: Path) -> None:
    with opened(browser, report) as (page, heard):
        whole = shown_ns(page)
        button = page.locator("#finding-1 button[data-start]").first
        start, end = int(button.get_attribute("data-start") or 0), int(button.get_attribute("data-end") or 0)
        button.click()
        low, high = shown_ns(page)
        assert low <= start <= end <= high
        assert high - low < (whole[1] - whole[0]) / 20
        assert re.search(r"longest of them.*Shown", page.locator("#status").inner_text())
        over = page.locator("#lanes .u-over").nth(2)
        over.hover()
        assert "gemm" in page.locator("#readout").inner_text()
        marks = page.locator("#lanes .u-over").first
        marks.click()
        assert page.evaluate("document.activeElement.id") == "finding-1-title"
        assert heard.complaints == []


def test_the_table_of_kernels_sorts_by_any_column(browser: Browser, report: Path) -> None:
    with opened(browser, report) as (page, _):
        page.get_by_role("button", name="Median").click()
        medians = page.locator("table.kernels tbody td:nth-child(4)").evaluate_all(
            "cells => cells.map(c => +c.dataset.value)"
        )
        assert medians == sorted(medians, reverse=True)
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("Median")


def test_a_setting_can_be_copied(browser: Browser, report: Path) -> None:
    with opened(browser, report) as (page, _):
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.locator("button[data-copies]").first.click()
        page.wait_for_function("document.querySelector('#status').textContent.startsWith('Copied')")
        assert page.evaluate("navigator.clipboard.readText()") == page.locator("dl.fixes code").first.inner_text()


@pytest.mark.parametrize(("width", "theme"), [(400, "light"), (1280, "dark")])
def test_it_can_be_read_by_everybody(browser: Browser, report: Path, width: int, theme: Theme) -> None:
    with opened(browser, report, width=width, theme=theme, is_strict=False) as (page, _):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        result = Axe().run(page, options=AXE_RULES)
        assert result.violations_count == 0, result.generate_report()


def test_it_prints_without_controls_and_with_the_coarse_picture(browser: Browser, report: Path) -> None:
    with opened(browser, report, theme="dark") as (page, _):
        pages = page.pdf(format="A4")
        assert pages.startswith(b"%PDF")
        page.emulate_media(media="print")
        assert page.locator("svg.coarse").is_visible()
        assert not page.locator("#lanes").is_visible()
        assert not page.get_by_role("button", name="Copy").first.is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_it_can_be_read_where_scripts_do_not_run(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("svg.coarse").is_visible()
    assert not page.locator(".tools").is_visible()
    context.close()


def test_hostile_names_run_nothing(browser: Browser, tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    known = diagnoses.hostile()
    row = Track(evil, STREAM_KINDS, 0.5, ((1.0, 1.0), (0.0, 0.0), (0.0, 0.0)))
    zoom = ZoomableTimeline((row,), (CloseUp(0, 1, (Span(0, 0, 0, 1, evil),)),))
    path = tmp_path / "hostile.html"
    path.write_text(
        render(replace(known, display=replace(known.display, zoom=zoom)), "html", Presentation()), encoding="utf-8"
    )
    with opened(browser, path) as (page, heard):
        page.locator("#lanes .u-over").first.hover()
        assert evil in page.locator("#readout").inner_text()
        assert page.locator("img").count() == 0
        assert heard.dialogs == []
        assert heard.complaints == []
        assert heard.requests == [path.as_uri()]


def test_even_a_script_that_got_in_could_neither_run_nor_call_out(browser: Browser, report: Path) -> None:
    with opened(browser, report) as (page, heard):
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}),"
            " Object.assign(new Image(), {src: 'https://example.org/x.png'}))"
        )
        assert page.evaluate("window.ran") is None
        outcome = page.evaluate("fetch('https://example.org/').then(() => 'sent', () => 'blocked')")
        assert outcome == "blocked"
        assert heard.blocked == ["https://example.org/x.png csp"]
        assert sum("Content Security Policy" in complaint for complaint in heard.complaints) >= 3
