"""The diagnosis as one HTML file that opens offline: it holds its script, style and data, and loads nothing.

A Content-Security-Policy in the page allows exactly its own script and style, by digest, and no network. All text is
escaped by Jinja; data for the script is JSON with the characters escaped that could end its element.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from doctor.diagnosis.outcome import Diagnosis
from doctor.reports.html_page.page import page_of
from doctor.reports.html_page.timeline_data import timeline_json
from doctor.reports.presentation import Presentation

_TEMPLATE = "template"


def render(diagnosis: Diagnosis, presentation: Presentation) -> str:
    """The whole page."""
    style = _asset("uplot/uPlot.min.css") + _asset("style.css")
    library = f"/*\n{_asset('uplot/LICENSE')}\n*/\n{_asset('uplot/uPlot.iife.min.js')}"
    script = _asset("timeline.js")
    data = timeline_json(diagnosis)
    text: str = (
        _environment()
        .get_template("page.html")
        .render(
            page=page_of(diagnosis),
            policy=_policy(scripts=(library, script), style=style),
            style=Markup(style),  # noqa: S704 - our own files; evidence reaches the page as text or as escaped JSON
            library=Markup(library),  # noqa: S704
            script=Markup(script),  # noqa: S704
            timeline_data=None if data is None else Markup(data),  # noqa: S704
        )
    )
    return text.rstrip() + "\n"


def _policy(scripts: tuple[str, ...], style: str) -> str:
    allowed = " ".join(_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("doctor.reports.html_page", _TEMPLATE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _asset(name: str) -> str:
    return resources.files("doctor.reports.html_page").joinpath(_TEMPLATE, name).read_text("utf-8")
