"""Colours: one per stage, the same on every page and in both themes, and the theme of the application.

Owns every colour value of the dashboard. A colour is never the only signal: the stage's name stands by it.
The stage colours have a contrast of at least 2.9 with both backgrounds and stay apart (an OKLab distance of
0.085 and more) for normal, protanope and deuteranope eyes; tests/dashboard/test_palette.py computes both.
"""

from __future__ import annotations

from typing import Final

STAGE: Final = {
    "auth": "#7e5a9a",
    "preprocess": "#4497e7",
    "queue": "#cc6d1b",
    "inference": "#3c57d1",
    "postprocess": "#0b9a67",
    "serialize": "#736101",
    "network": "#5d9dae",
    "coldstart": "#ff4f87",
    "other": "#6d625e",
}

UNKNOWN: Final = "#8a8f98"
"""A stage that has no colour of its own, and steps of a chart that are no stage."""

PERCENTILES: Final = ("p50", "p95", "p99")
PERCENTILE_OPACITY: Final = (0.5, 0.75, 1.0)
PERCENTILE_DASH: Final = ((1, 0), (7, 3), (2, 2))
"""Lines over time are drawn in the ink of the theme, since every colour already names a stage."""

ERROR: Final = "#d64545"
LIGHT_BACKGROUND: Final = "#ffffff"
DARK_BACKGROUND: Final = "#0f141b"

_LIGHT: Final = {
    "primaryColor": "#3c57d1",
    "backgroundColor": LIGHT_BACKGROUND,
    "secondaryBackgroundColor": "#f4f6fa",
    "textColor": "#1c2330",
    "borderColor": "#dfe4ec",
    "linkColor": "#3c57d1",
    "redColor": "#c93c3c",
    "orangeColor": "#b85f12",
    "greenColor": "#0a8459",
}
_DARK: Final = {
    "primaryColor": "#7f95ff",
    "backgroundColor": DARK_BACKGROUND,
    "secondaryBackgroundColor": "#182029",
    "textColor": "#e6eaf0",
    "borderColor": "#2a3441",
    "linkColor": "#9aabff",
    "redColor": "#ff7b7b",
    "orangeColor": "#f0a35c",
    "greenColor": "#4cc79a",
}
_SHARED: Final = {
    "baseRadius": "0.5rem",
    "metricValueFontSize": "1.75rem",
    "paddingTop": "1rem",
    "paddingBottom": "2rem",
}

DENSITY_LIGHT: Final = ["#fbe3b8", "#f2a154", "#c8465d", "#6b1f6b", "#1b0c33"]
DENSITY_DARK: Final = ["#2f1b52", "#7a2a74", "#d24a5c", "#f5a04e", "#fdf0b5"]
"""Few to many, for the heat map: away from the background, so that an empty cell is the background."""


def of_stage(stage: str | None) -> str:
    """Return the colour of a stage; a part of one, such as inference.prefill, has that of the whole."""
    return STAGE.get((stage or "").partition(".")[0], UNKNOWN)


def density(theme: str | None) -> list[str]:
    """Return the colours from few to many for a theme ('light' or 'dark')."""
    return DENSITY_DARK if theme == "dark" else DENSITY_LIGHT


def ink(theme: str | None) -> str:
    """Return the colour of text and rules drawn inside a chart."""
    return (_DARK if theme == "dark" else _LIGHT)["textColor"]


def theme_options() -> dict[str, str]:
    """Return Streamlit's theme options, light and dark, by option name."""
    options = {f"theme.{name}": value for name, value in _SHARED.items()}
    for name, theme in (("light", _LIGHT), ("dark", _DARK)):
        options |= {f"theme.{name}.{option}": value for option, value in theme.items()}
    return options
