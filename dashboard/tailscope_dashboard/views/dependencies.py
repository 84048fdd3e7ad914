"""Dependencies: who calls whom, how often, how slow, how often in vain, and what lies between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl
import streamlit as st

from tailscope_dashboard import _address as address
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _map_component as component
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _service_map as maps
from tailscope_dashboard import _states as states
from tailscope_dashboard._sqltext import literal

if TYPE_CHECKING:
    from tailscope_dashboard._sampled import Sampled
    from tailscope_dashboard._scope import Scope

EDGES_KEY: Final = "edges"

_FIGURES: Final = ["calls", "rate", "error_share", "p50_ms", "p99_ms", "gap_ms", "gap_p99_ms"]


def render() -> None:
    """Draw the page."""
    scope = controls.choose_scope()
    if scope is None:
        return
    sampled = data.sample(scope)
    if sampled.total == 0:
        states.nothing_matches()
        return
    asked = maps.values(scope, sampled)
    seconds = (scope.until - scope.since).total_seconds()
    with st.spinner("Counting the calls…"):
        calls = maps.known(data.named("service_calls", asked), seconds=seconds)
        services = maps.known(data.named("services_served", asked), seconds=seconds)
    edges = maps.edges_of(calls)
    _map(scope, edges, services, sampled)
    chosen = _chosen()
    if len(chosen) == 2:
        _edge(scope, calls, edges, *chosen)
    elif len(chosen) == 1:
        _service(scope, edges, services, chosen[0])
    _tables(edges, services)


def _chosen() -> tuple[str, ...]:
    """Return what the link names: a service, or caller and callee."""
    caller, callee, node = (address.get(name) for name in (address.CALLER, address.CALLEE, address.NODE))
    if caller and callee:
        return caller, callee
    return (node,) if node else ()


def _choose(*names: str) -> None:
    address.put(address.NODE, names[0] if len(names) == 1 else None)
    address.put(address.CALLER, names[0] if len(names) == 2 else None)
    address.put(address.CALLEE, names[1] if len(names) == 2 else None)


def _map(scope: Scope, edges: pl.DataFrame, services: pl.DataFrame, sampled: Sampled) -> None:
    with st.container(border=True):
        st.markdown(
            f"**Who calls whom** · {figures.plural(sampled.total, 'request')}{sampled.said()} · "
            "click a service or an edge to look into it"
        )
        if edges.is_empty():
            st.info(
                "No call between services: no span of kind CLIENT or PRODUCER in these requests. "
                "Instrument the clients: HTTP, gRPC, databases.",
                icon=":material/device_hub:",
            )
        seconds = (scope.until - scope.since).total_seconds()
        component.draw(
            maps.drawing(edges, services, seconds=seconds, chosen=_chosen()),
            on_choose=lambda: _choose(*component.chosen()),
        )
        drawn = len(set(edges["caller"]) | set(edges["callee"]) | set(services["service"]))
        if drawn > maps.MOST_DRAWN:
            st.caption(
                f"The {maps.MOST_DRAWN} busiest of {figures.count(drawn)} services; the tables have all."
            )


def _edge(scope: Scope, calls: pl.DataFrame, edges: pl.DataFrame, caller: str, callee: str) -> None:
    found = edges.filter((pl.col("caller") == caller) & (pl.col("callee") == callee))
    with st.container(border=True, key="chosen"):
        st.text(f"{caller} → {callee}")
        if found.is_empty():
            st.info("There is no such call in this selection.", icon=":material/search_off:")
            return
        row = found.row(0, named=True)
        n = f"n = {figures.count(row['calls'])}"
        with st.container(horizontal=True):
            placing.figure("Calls", figures.count(row["calls"]), f"{row['rate']:,.1f} /s")
            placing.figure(
                "Errors",
                figures.share(row["error_share"], digits=2),
                f"{figures.count(row['errors'])} failed",
            )
            placing.figure("p50", figures.milliseconds(row["p50_ms"]), n)
            placing.figure("p99", figures.milliseconds(row["p99_ms"]), n)
            gap_n = f"n = {figures.count(row['gap_effective'])}"
            placing.figure("Mean gap", figures.milliseconds(row["gap_ms"]), gap_n)
            placing.figure("Gap p99", figures.milliseconds(row["gap_p99_ms"]), gap_n)
        if not row["traced"]:
            st.caption("The callee sends no spans: there is no gap to tell from its own time.")
        placing.table(
            maps.operations_of(calls, caller, callee).select("operation", *_FIGURES),
            {"operation": "Operation", **_call_columns()},
            height="content",
        )
        _requests_link(
            scope,
            f"service = {literal(caller)} and category in ('gap', 'dependency')",
            "Requests in which it calls",
        )


def _service(scope: Scope, edges: pl.DataFrame, services: pl.DataFrame, name: str) -> None:
    with st.container(border=True, key="chosen"):
        st.text(name)
        found = services.filter(pl.col("service") == name)
        ends = (pl.col("caller") == name) | (pl.col("callee") == name)
        if found.is_empty() and edges.filter(ends).is_empty():
            st.info("There is no such service in this selection.", icon=":material/search_off:")
            return
        if found.height:
            _served(found.row(0, named=True))
        for title, end in (("Called by", "callee"), ("Calls", "caller")):
            rows = edges.filter(pl.col(end) == name)
            if rows.height:
                st.markdown(f"**{title}**")
                placing.table(
                    rows.select(["caller" if end == "callee" else "callee", *_FIGURES]),
                    {"caller": "Caller", "callee": "Callee", **_call_columns()},
                    height="content",
                )
        if found.height:
            _requests_link(scope, f"service = {literal(name)}", "Requests that pass through it")


def _served(row: dict[str, Any]) -> None:
    n = f"n = {figures.count(row['requests'])}"
    with st.container(horizontal=True):
        placing.figure("Answered", figures.count(row["requests"]), f"{row['rate']:,.1f} /s")
        placing.figure(
            "Errors", figures.share(row["error_share"], digits=2), f"{figures.count(row['errors'])} failed"
        )
        placing.figure("p50", figures.milliseconds(row["p50_ms"]), n)
        placing.figure("p99", figures.milliseconds(row["p99_ms"]), n)
        placing.figure("Time of its own", figures.milliseconds(row["own_ms"]), "a request, mean")


def _requests_link(scope: Scope, condition: str, label: str) -> None:
    inside = f"trace_id in (select trace_id from stages where {condition})"  # noqa: S608  quoted by literal
    where = f"({scope.where}) and {inside}" if scope.where else inside
    with st.container(horizontal=True):
        for page, icon in (
            ("requests", ":material/format_list_numbered:"),
            ("why", ":material/troubleshoot:"),
        ):
            said = label if page == "requests" else "Why those are slow"
            pages.link(page, scope.link() | {address.WHERE: where}, label=said, icon=icon)


def _tables(edges: pl.DataFrame, services: pl.DataFrame) -> None:
    if edges.height:
        st.markdown("**Calls** · the most frequent first · click a row to look into it")
        row = placing.clicked_row(
            edges.select("caller", "callee", *_FIGURES),
            {"caller": "Caller", "callee": "Callee", **_call_columns()},
            key=EDGES_KEY,
        )
        if row is not None and _chosen() != (pair := (edges["caller"][row], edges["callee"][row])):
            _choose(*pair)
            st.rerun()
    st.markdown("**Services** · what each answered, and its own time a request")
    placing.table(
        services.select("service", "requests", "rate", "error_share", "p50_ms", "p99_ms", "own_ms"),
        {
            "service": "Service",
            "requests": st.column_config.NumberColumn("Answered (n)", format="%,d"),
            **_shared_columns(),
            "own_ms": st.column_config.NumberColumn(
                "own time a request, ms", format="%,.2f", help="Mean over all requests of the selection"
            ),
        },
        height="content",
    )


def _call_columns() -> dict[str, Any]:
    return {
        "calls": st.column_config.NumberColumn("Calls (n)", format="%,d"),
        **_shared_columns(),
        "gap_ms": st.column_config.NumberColumn(
            "mean gap, ms", format="%,.2f", help="What the caller measured and the callee did not"
        ),
        "gap_p99_ms": st.column_config.NumberColumn("gap p99, ms", format="%,.2f"),
    }


def _shared_columns() -> dict[str, Any]:
    return {
        "rate": st.column_config.NumberColumn("a second", format="%,.2f"),
        "error_share": st.column_config.NumberColumn("Errors", format="percent"),
        "p50_ms": st.column_config.NumberColumn("p50, ms", format="%,.2f"),
        "p99_ms": st.column_config.NumberColumn("p99, ms", format="%,.2f"),
    }
