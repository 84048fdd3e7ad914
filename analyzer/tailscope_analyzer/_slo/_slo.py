"""Hold requests against a target.

Owns the order of the steps and which requests are good. An empty window and too few requests are answers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import polars as pl

from tailscope_analyzer._errors import InputError
from tailscope_analyzer._notes import SERVER_ERROR
from tailscope_analyzer._parts import counted_requests, split_requests
from tailscope_analyzer._quality import is_enough
from tailscope_analyzer._report import Window
from tailscope_analyzer._slo._burn import Requests, alerts_of, course_of, exhausted_ns
from tailscope_analyzer._slo._missed import missed_by
from tailscope_analyzer._slo._result import VERSION, Slo
from tailscope_analyzer._slo._share import Share, share_of
from tailscope_analyzer._slo._target import PERIOD_S, Target, parse_target
from tailscope_analyzer._slo._words import notes_on, verdict_of
from tailscope_analyzer._source import Selection
from tailscope_analyzer._traces import Traces

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools

TRACES: Final = 5
"""Bad requests that are named."""
COLUMNS: Final = ("trace_id", "start_unix_nano", "duration_ns", "status", "http_status")
NS: Final = 1_000_000_000
LONGEST_S: Final = 100 * 365.25 * 86_400
"""A budget for longer ends beyond what a date can say."""


def slo(
    traces: Traces,
    *,
    target: str | Target,
    name: str = "",
    period_s: float = PERIOD_S,
    selection: Selection | None = None,
) -> Slo:
    """Say whether the requests kept the target, how fast its budget goes and what the others spent.

    Args:
        traces: the requests and their ledger; where they span more than a period, the last one counts.
        target: such as `p99<200ms`, `99%<200ms` or `errors<0.1%`, or a preset (`voice`).
        name: what the target is called.
        period_s: what the budget is for; 30 days.
        selection: what `traces` was selected by; it is repeated in `window`.

    Raises:
        InputError: the target or the period cannot mean anything.

    """
    goal = parse_target(target) if isinstance(target, str) else target
    if not 0 < period_s <= LONGEST_S:
        raise InputError(
            f"A period of {period_s:g} s has no budget. Give a positive number of seconds, up to 100 years."
        )
    traces = _of_the_last(traces, period_s)
    requests = counted_requests(traces, *COLUMNS).sort("duration_ns", "trace_id")
    bad = _is_bad(requests, goal)
    share = share_of(bad, requests["sample_weight"].to_numpy())
    some, status = len(requests) > 0, _status(share, goal)
    timed = _timed(requests, bad, goal.budget)
    alerts, exhausted = alerts_of(timed, period_s), exhausted_ns(timed)
    used, rate = share.value / goal.budget, alerts[-1].long.burn_rate if alerts else None
    missed = missed_by(traces, split_requests(traces), bad) if bad.any() else None
    return Slo(
        version=VERSION,
        name=name,
        target=goal,
        window=_window(timed, selection or Selection()),
        status=status,
        certain=_is_certain(share, goal, status),
        requests=round(share.requests),
        bad=round(share.bad),
        bad_share=share.value if some else None,
        bad_ci95=share.ci95 if some else None,
        budget_used=used if some else None,
        budget_used_ci95=(share.ci95[0] / goal.budget, share.ci95[1] / goal.budget) if some else None,
        duration_s=timed.duration_s,
        period_s=period_s,
        period_used=used * timed.duration_s / period_s if some else None,
        exhausted_at=None if exhausted is None else _iso(exhausted),
        lasts_s=period_s / rate if rate else None,
        ends_at=_end(timed, used, rate, period_s),
        alerts=alerts,
        course=course_of(timed, _iso),
        missed=missed,
        traces=tuple(requests["trace_id"].filter(pl.Series(bad)).tail(TRACES).reverse().to_list()),
        notes=notes_on(requests, bad, goal, alerts, period_s),
        verdict=verdict_of(share, goal, status, missed),
    )


def _of_the_last(traces: Traces, period_s: float) -> Traces:
    """Leave out what began more than a period before the last request."""
    requests = traces.requests
    last = requests.filter("counted")["start_unix_nano"].max()
    if not isinstance(last, int):
        return traces
    old = pl.col("start_unix_nano") < last - int(min(period_s * NS, last))
    recent = requests.filter(~old.fill_null(False))
    if len(recent) == len(requests):
        return traces
    ledger = traces.ledger.filter(pl.col("trace_id").is_in(recent["trace_id"].implode()))
    return Traces.from_parts(recent, ledger, spans=traces.spans_of if traces.can_give_spans else None)


def _is_bad(requests: pl.DataFrame, goal: Target) -> Bools:
    if goal.threshold_ms is not None:
        return requests["duration_ns"].to_numpy() >= round(goal.threshold_ms * 1e6)
    failed = (pl.col("status") == "error") | (pl.col("http_status") >= SERVER_ERROR)
    return requests.select(failed.fill_null(False)).to_series().to_numpy()


def _status(share: Share, goal: Target) -> Literal["met", "missed", "too_few"]:
    if share.requests and share.ci95[0] > goal.budget:
        return "missed"
    if not is_enough(share.effective, goal.objective):
        return "too_few"
    return "missed" if share.value > goal.budget else "met"


def _is_certain(share: Share, goal: Target, status: str) -> bool:
    low, high = share.ci95
    return (status == "missed" and low > goal.budget) or (status == "met" and high <= goal.budget)


def _timed(requests: pl.DataFrame, bad: Bools, budget: float) -> Requests:
    start_ns, weight = requests["start_unix_nano"].to_numpy(), requests["sample_weight"].to_numpy()
    order = np.argsort(start_ns, kind="stable")
    return Requests(start_ns[order], bad[order], weight[order], budget)


def _end(timed: Requests, used: float, rate: float | None, period_s: float) -> str | None:
    """Return when a budget that was whole at the first request ends; None when the period does first."""
    if not rate:
        return None
    duration_s = timed.duration_s
    after_s = duration_s + (1.0 - used * duration_s / period_s) * period_s / rate
    if after_s > period_s or after_s < duration_s:
        return None
    return _iso(int(timed.start_ns[0]) + round(after_s * NS))


def _window(timed: Requests, selection: Selection) -> Window:
    some = len(timed.start_ns) > 0
    start, end = (_iso(int(timed.start_ns[at])) if some else None for at in (0, -1))
    return Window(start, end, selection.service, selection.operation, selection.where)


def _iso(unix_ns: int) -> str:
    when = datetime.fromtimestamp(unix_ns // NS, UTC).replace(microsecond=unix_ns % NS // 1000)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")
