"""The demo on the terminal: what was planted beside what Tailscope found.

Owns the words and the table. Measures nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from tailscope.demo._measure import Measured

WIDTH_WITHOUT_TERMINAL = 100
"""Columns to lay the table out for in a pipe or in CI."""


def planted(measured: list[Measured], report: dict[str, Any], end: dict[str, Any]) -> None:
    """Print the table of faults and the check from outside on stdout."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    console.print()
    console.print(planted_table(measured, percentile=report["percentile"]))
    missing = [found.fault.name for found in measured if not found.shows]
    if missing:
        console.print(f"[yellow]Not seen in this run: {', '.join(missing)}.[/yellow]", soft_wrap=True)
    else:
        console.print("Every planted fault shows where it was planted.")
    console.print(client_line(report, end))


def planted_table(measured: list[Measured], *, percentile: float) -> Table:
    """Return one row for each fault: what was planted, where it shows, and with how many milliseconds.

    `measured` compares requests that met the fault with all others; the last column is its part of the split.
    """
    table = Table(
        title="Planted on purpose, and where it shows",
        title_justify="left",
        caption="measured: requests that met the fault, less all others. "
        f"of p{percentile * 100:g}: the fault's part of the split, which rests on the requests around that "
        "percentile and may hold few that met it.",
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("planted (share of the requests)", ratio=1)
    table.add_column("shows in")
    table.add_column("requests", justify="right")
    table.add_column("planted", justify="right")
    table.add_column("measured", justify="right")
    table.add_column(f"of p{percentile * 100:g}", justify="right")
    for found in measured:
        table.add_row(
            f"[bold]{found.fault.name}[/bold]\n{found.fault.planted}",
            str(found.fault.rows),
            f"{found.affected:,}",
            f"{found.fault.planted_ms:.0f} ms",
            f"{'' if found.shows else '[yellow]not seen: '}{found.difference_ms:+.0f} ms",
            f"{found.excess_ms:+.0f} ms",
        )
    return table


def client_line(report: dict[str, Any], end: dict[str, Any]) -> str:
    """Say what the load saw beside what the spans say."""
    inside = report["latency_ms"]
    reason = f" (first: {end['first_failure']})" if end.get("first_failure") else ""
    return (
        f"{end['answered']:,} requests answered, {end['failed']} failed{reason}. Seen by the client: "
        f"p50 {end['p50_ms']:.0f}, p95 {end['p95_ms']:.0f}, p99 {end['p99_ms']:.0f} ms. Seen in spans: "
        f"p50 {inside['p50']:.0f}, p95 {inside['p95']:.0f}, p99 {inside['p99']:.0f} ms. "
        "The client also waits for the network and for a paused process to accept it."
    )
