"""Clocks that tick in a unit of their own, and what single traces of such clocks compare as."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tailscope_analyzer import Traces, ledger
from tailscope_analyzer._ticks import clock_ticks
from tests.analyzer.build import span, table

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints

T0 = 1_735_689_600_123_456_000
FINE = np.full(8, 2_000)
PARENTS = np.array([-1, 0, 1, 0, 3, 0, 5, 0])


def starts(tick_ns: float, ticks: list[int]) -> Ints:
    """Give starts on a lattice, rounded down to microseconds as most exporters do."""
    return T0 + (np.array(ticks) * tick_ns / 1000).astype(np.int64) * 1000


@pytest.mark.parametrize("tick_ns", [1e9 / 64, 1e9 / 1024, 734_219.0, 1_390_000.0])
def test_a_tick_of_any_length_is_found(tick_ns: float) -> None:
    start = starts(tick_ns, [0, 1, 2, 7, 9, 30, 31, 212])
    found = clock_ticks(np.zeros(8, dtype=np.int64), start, PARENTS, FINE, 1)
    assert abs(int(found[0]) - tick_ns - 2000) <= 100


def test_starts_of_a_fine_clock_do_not_tick() -> None:
    rng = np.random.default_rng(1)
    start = T0 + np.sort(rng.integers(0, 300_000, (2000, 8)) * 1000, axis=1)
    parent = np.where(PARENTS >= 0, PARENTS + 8 * np.arange(2000)[:, None], -1)
    found = clock_ticks(
        np.repeat(np.arange(2000), 8), start.ravel(), parent.ravel(), np.full(16_000, 2_000), 2000
    )
    assert not found.any()


def test_three_starts_are_too_few_for_a_tick() -> None:
    start = starts(1_390_000.0, [0, 3, 5])
    assert clock_ticks(np.zeros(3, dtype=np.int64), start, np.array([-1, 0, 1]), FINE[:3], 1)[0] == 0


def test_children_that_overlap_by_less_than_a_tick_were_waited_for_one_after_the_other() -> None:
    tick = 1.39
    rows = [span("root", 0, 40 * tick, kind="server", start_unix_nano=T0)]
    for number, at in enumerate((1, 5, 9, 15, 22, 30)):
        # Starts are cut to the tick below; durations are exact, so that each ends after the next began.
        until = (5, 9, 15, 22, 30, 38)[number]
        start = T0 + round(at * tick * 1e6)
        rows.append(span(f"work {number}", 0, (until - at) * tick + 0.9, "root", start_unix_nano=start))
    parts = ledger(Traces.from_spans(table(*rows)))
    spent = dict(parts.select("operation", "self_ms").rows())
    assert spent["root"] == pytest.approx(tick + (2 * tick - 0.9))
    assert spent["work 0"] == pytest.approx(4 * tick)


def test_a_tick_is_found_in_a_trace_of_thousands_of_ticks() -> None:
    start = starts(881_367.5, [0, 1, 3, 40, 41, 700, 705, 9000])
    found = clock_ticks(np.zeros(8, dtype=np.int64), start, PARENTS, FINE, 1)
    assert abs(int(found[0]) - 881_367 - 2000) <= 100
