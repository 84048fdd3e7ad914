"""The services as small multiples: latency against the target, errors and rate of each, a click to choose.

Owns the cards. Asks for nothing: rows come ready, those of too few requests without their percentiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl
import streamlit as st

from tailscope_dashboard import _address as address
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _targets as targets

if TYPE_CHECKING:
    from tailscope_dashboard._data import Record
    from tailscope_dashboard._scope import Scope

STEPS: Final = 32
"""Points of the line on a card, at most."""

_WIDTH: Final = 262
"""Four cards and their gaps in the 1,160 pixels that a window of 1,280 leaves."""


def cards(services: pl.DataFrame, lines: pl.DataFrame, scope: Scope, *, target_ms: float | None) -> None:
    """Draw a card for each service; `lines` has the p95 of each over time."""
    seconds = (scope.until - scope.since).total_seconds()
    with st.container(horizontal=True, gap="small", key="services"):
        for place, row in enumerate(services.iter_rows(named=True)):
            line = lines.filter(pl.col("service") == row["service"])["p95_ms"].to_list()
            _card(place, row, line, seconds, target_ms)


def _card(place: int, row: Record, line: list[float], seconds: float, target_ms: float | None) -> None:
    with st.container(border=True, width=_WIDTH, gap="small", key=f"card-service-{place}"):
        with st.container(horizontal=True, vertical_alignment="center", key=f"strong-service-{place}"):
            st.text(row["service"], width="stretch")
            st.button(
                "Choose",
                key=f"choose-service-{place}",
                type="tertiary",
                on_click=_choose,
                args=(row["service"],),
                help="Look at this service alone",
            )
        judgement = targets.judge(row["p99_ms"], target_ms)
        st.metric(
            "p99 · line: p95 over time",
            figures.milliseconds(row["p99_ms"]),
            None if judgement is None else judgement.word,
            delta_color="off" if judgement is None else judgement.colour,
            delta_arrow="off",
            icon=None,
            chart_data=line or None,
        )
        shares = f"p50 {figures.milliseconds(row['p50_ms'])} · p95 {figures.milliseconds(row['p95_ms'])}"
        st.caption(
            f"{shares}  \n{figures.rate(row['requests'], seconds)} · "
            f"{figures.share(row['error_share'], digits=2)} errors · n = {figures.count(row['requests'])}"
        )


def _choose(service: str) -> None:
    address.put(address.SERVICE, service)
    address.put(address.OPERATION, None)
