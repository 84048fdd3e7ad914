"""The panel of What if: a slider for each large kind of time, and the percentiles predicted from them.

Owns the widgets, which are drawn anew without the rest of the page. Predictions come from the collector.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import streamlit as st

from tailscope.conventions import STAGES
from tailscope_analyzer import AnalyzerError
from tailscope_dashboard import _address as address
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _live as live
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _states as states
from tailscope_dashboard import _whatif as whatif
from tailscope_dashboard import _why_charts as charts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope_analyzer import Report
    from tailscope_dashboard._scope import Scope

UNCHANGED_MS = 0.001
"""Below a microsecond a percentile has not moved: it is the rounding of sums."""


@st.fragment
def draw(scope: Scope, report: Report) -> None:
    """Draw the sliders, and the prediction once one of them has moved."""
    known = whatif.targets(report)
    with st.container(border=True, key="whatif"):
        st.markdown("**What if** · move a slider: how much of that time would be left, of every request")
        left, right = st.columns([2, 3], gap="large")
        with left:
            changes = _sliders(known)
        with right:
            if asked := changes.parameters():
                _predicted(scope, asked)
            else:
                _suggested(report)


def _sliders(known: list[whatif.Target]) -> whatif.Changes:
    changes = whatif.read_changes(known)
    for place, target in enumerate(known):
        with st.container(gap=None, key=f"slider-{place}"):
            # The name is written as text: a slider's label would read it as Markdown. Stages are our words.
            with st.container(horizontal=True, vertical_alignment="center"):
                st.text(target.name, width="stretch")
                typical, tail = figures.milliseconds(target.typical_ms), figures.milliseconds(target.tail_ms)
                st.caption(f"typical {typical} · tail {tail}", width="content")
            st.slider(
                f"{place + 1}, {target.stage if target.stage in STAGES else 'this'}: per cent that is left",
                0,
                whatif.MOST_PERCENT,
                step=5,
                format="%d %%",
                key=address.seeded(f"whatif-{place}", changes.percents.get(target.name, 100)),
                on_change=_write,
                args=(known,),
                label_visibility="collapsed",
            )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.number_input(
            "Servers more, at each queue",
            0,
            whatif.MOST_REPLICAS,
            step=1,
            key=address.seeded(address.REPLICAS, changes.replicas),
            on_change=address.writer(address.REPLICAS, lambda value: str(value) if value else None),
            width=200,
        )
        st.button("Back to now", icon=":material/undo:", disabled=not changes.parameters(), on_click=_clear)
    return changes


def _write(known: list[whatif.Target]) -> None:
    percents = {
        target.name: int(st.session_state[f"in:whatif-{place}"]) for place, target in enumerate(known)
    }
    address.put(address.CHANGES, whatif.changes_text(percents))


def _clear() -> None:
    address.put(address.CHANGES, None)
    address.put(address.REPLICAS, None)


def _predicted(scope: Scope, asked: tuple[tuple[str, str], ...]) -> None:
    try:
        # Live, the prediction of before stays until this one is here.
        with nullcontext() if live.is_on() else st.spinner("Retiming the requests…"):
            answer = data.whatif(scope, asked)
    except AnalyzerError as error:
        # Not the whole page: a change that cannot be predicted is an answer of this panel.
        st.info("This cannot be predicted from these requests:", icon=":material/block:")
        st.text(str(error))
        return
    rows = whatif.percentile_rows(answer)
    if rows.is_empty():
        states.too_few(answer["requests"], 6, "a prediction")
        return
    _figures(answer)
    placing.chart(
        charts.predictions(rows, rows["percentile"].to_list(), theme=st.context.theme.type),
        height=70 + 34 * rows.height,
        alt_text="Percentiles now and predicted, with 95 % intervals",
    )
    st.caption(
        f"Hollow: now; filled: predicted; broad line: 95 % interval. n = {figures.count(answer['requests'])}"
        + (f", the newest of {figures.count(answer['selected'])}." if _is_part(answer) else ".")
    )
    _table(answer["rows"])
    for note in answer["notes"]:
        st.text(note)


def _figures(answer: Mapping[str, Any]) -> None:
    last = whatif.all_together(answer) or {}
    with st.container(horizontal=True, key="predicted"):
        for name in whatif.PERCENTILES:
            now, then = answer[f"{name}_ms"], last.get(f"{name}_ms")
            if now is None or then is None:
                placing.figure(f"{name}, predicted", figures.MISSING, "too few requests")
                continue
            change_ms = float(then) - float(now)
            colour: placing.Colour = "green" if change_ms < 0 else "red"
            placing.judged_figure(
                f"{name}, predicted",
                figures.milliseconds(then),
                figures.milliseconds(change_ms, signed=True),
                colour=colour if abs(change_ms) >= UNCHANGED_MS else "off",
            )


def _suggested(report: Report) -> None:
    rows = [row for row in report.whatif if row.get("p99_ms") is not None]
    if not rows:
        st.text("Nothing is predicted yet: move a slider.")
        return
    st.markdown(f"If one kind of time were **halved** · n = {figures.count(report.requests)}")
    _table(rows)


def _table(rows: list[dict[str, Any]]) -> None:
    number = st.column_config.NumberColumn
    placing.table(
        whatif.change_table(rows),
        {
            "change": "change",
            "p50_ms": number("p50, ms", format="%,.1f"),
            "p95_ms": number("p95, ms", format="%,.1f"),
            "p99_ms": number("p99, ms", format="%,.1f"),
            "interval": "95 % interval of p99",
            "saved_ms": number("saved at p99, ms", format="%,.1f"),
            "saved_interval": "95 % of that",
            "queues": "queues",
        },
        height="content",
    )


def _is_part(answer: Mapping[str, Any]) -> bool:
    return bool(answer["selected"] > answer["requests"])
