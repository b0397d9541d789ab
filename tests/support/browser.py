"""A real headless Chromium, the one that the system has installed: `$DOCTOR_CHROMIUM`, or `chromium` on PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
Theme = Literal["light", "dark"]


def chromium_path() -> str:
    """The executable; skips the test where there is none."""
    found = os.environ.get("DOCTOR_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium, or set DOCTOR_CHROMIUM")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; as root, as in a container, it has no sandbox of its own."""
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Heard:
    """What a page asked for, what of that failed and why, and what it complained about while it was open."""

    requests: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def dismiss(self, dialog: Dialog) -> None:
        """Note what a dialog said and close it."""
        self.dialogs.append(dialog.message)
        dialog.dismiss()


@contextmanager
def opened(
    browser: Browser, file: Path, *, width: int = 1280, theme: Theme = "light", is_strict: bool = True
) -> Iterator[tuple[Page, Heard]]:
    """The file as a page without a network, and what it does.

    Args:
        browser: of `chromium`.
        file: an HTML file.
        width: of the window, in CSS pixels.
        theme: what the reader prefers.
        is_strict: False lifts the page's own policy, for a tool that is put into it.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=theme,
        reduced_motion="reduce",
        offline=True,
        bypass_csp=not is_strict,
    )
    context.set_default_timeout(10_000)
    page, heard = context.new_page(), Heard()
    page.on("request", lambda request: heard.requests.append(request.url))
    page.on("requestfailed", lambda request: heard.blocked.append(f"{request.url} {request.failure}"))
    page.on("console", lambda message: heard.complaints.append(message.text))
    page.on("pageerror", lambda error: heard.complaints.append(str(error)))
    page.on("dialog", heard.dismiss)
    try:
        page.goto(file.as_uri())
        yield page, heard
    finally:
        context.close()
