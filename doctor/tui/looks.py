"""Colours and themes. Meaning never hangs on a colour alone: words, shapes or places carry it too.

The colours are those of Okabe and Ito (2008), which people with any kind of colour vision tell apart, lightened for
dark and darkened for light backgrounds.
"""

from __future__ import annotations

from textual.app import App
from textual.color import Color
from textual.theme import Theme

from doctor.rule import Severity

DARK = "doctor-dark"
LIGHT = "doctor-light"

THEMES = (
    Theme(
        name=DARK,
        primary="#56B4E9",
        secondary="#2FC39A",
        accent="#F0C442",
        warning="#E69F00",
        error="#F0713A",
        success="#2FC39A",
        foreground="#E6E9ED",
        background="#12161B",
        surface="#1A2027",
        panel="#252D36",
        dark=True,
    ),
    Theme(
        name=LIGHT,
        primary="#005F99",
        secondary="#00694F",
        accent="#7A5200",
        warning="#8F5600",
        error="#A83A00",
        success="#00694F",
        foreground="#1A2027",
        background="#FBFBF9",
        surface="#F1F2EF",
        panel="#DFE3E2",
        dark=False,
    ),
)

SEVERITY_COLOURS = {
    Severity.CRITICAL: "$error",
    Severity.HIGH: "$warning",
    Severity.MEDIUM: "$accent",
    Severity.LOW: "$primary",
    Severity.INFO: "$foreground-muted",
}
"""Theme variables, for markup and styles."""

SEVERITY_BARS = {
    Severity.CRITICAL: "████",
    Severity.HIGH: "███ ",
    Severity.MEDIUM: "██  ",
    Severity.LOW: "█   ",
    Severity.INFO: "·   ",
}
"""The severity again, as a length."""


def colour(app: App[None], name: str) -> str:
    """A theme's colour as a hexadecimal number, for renderables that know no theme; translucent ones on the ground."""
    wanted = Color.parse(app.theme_variables[name])
    return Color.parse(app.theme_variables["background"]).blend(wanted.with_alpha(1.0), wanted.a).hex
