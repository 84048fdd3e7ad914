"""The rules of a gate: which regressions make a build fail.

Owns their spelling (`p99>5%`, `stage:queue>20ms`) and the decision. A rule fails only on what is more than
chance, and on what cannot be judged: a gate that sees nothing must not be green.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._compare._comparison import ServiceShift, StageShift
from tailscope_analyzer._errors import InputError
from tailscope_analyzer._headline import milliseconds

if TYPE_CHECKING:
    from tailscope_analyzer._compare import Comparison

LATENCIES: Final = ("p50", "p90", "p95", "p99", "p999", "mean")
_RULE: Final = re.compile(r"\s*(?P<what>[^<>]+?)\s*>\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|ms|s)\s*")


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition under which the gate fails."""

    text: str
    what: str
    """A latency (`p99`, `mean`), `stage:NAME` or `service:NAME`."""
    limit: float
    """Milliseconds, or a share of the baseline where `is_share`."""
    is_share: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one rule."""

    rule: Rule
    failed: bool
    reason: str


def parse_rule(text: str) -> Rule:
    """Read `p99>5%`, `p50>10ms`, `stage:queue>20ms` or `service:NAME>5%`; raises InputError otherwise."""
    found = _RULE.fullmatch(text)
    kind, _, name = (found["what"] if found else "").partition(":")
    known = name if kind in ("stage", "service") else kind in LATENCIES and not name
    if found is None or not known:
        raise InputError(
            f"Not a rule: {text!r}. Write LATENCY>LIMIT, such as p99>5% or p50>10ms, with one of "
            f"{', '.join(LATENCIES)}; or stage:NAME>20ms or service:NAME>5%."
        )
    number = float(found["number"]) * {"%": 0.01, "ms": 1.0, "s": 1000.0}[found["unit"]]
    return Rule(text.strip(), found["what"], number, found["unit"] == "%")


def judge(comparison: Comparison, rules: list[Rule]) -> list[Verdict]:
    """Decide each rule."""
    return [_latency(comparison, rule) if ":" not in rule.what else _part(comparison, rule) for rule in rules]


def _latency(comparison: Comparison, rule: Rule) -> Verdict:
    row = next((one for one in comparison.latency if one.name == rule.what), None)
    if row is None or row.excess_ms is None or row.ci95_ms is None or row.baseline_ms is None:
        few = f"{comparison.baseline.requests:,} and {comparison.candidate.requests:,} requests"
        return Verdict(rule, True, f"{rule.what} cannot be judged from {few}; it needs more on both sides")
    moved = (
        f"{rule.what} went from {milliseconds(row.baseline_ms)} to {milliseconds(row.candidate_ms or 0.0)}"
    )
    if row.excess_ms <= _limit_ms(rule, row.baseline_ms):
        return Verdict(rule, False, f"{moved}, within the limit")
    if not row.significant:
        return Verdict(rule, False, f"{moved}, which can be chance")
    return Verdict(rule, True, moved)


def _part(comparison: Comparison, rule: Rule) -> Verdict:
    """Judge every row of the stage or service by itself: the largest may be chance, and a smaller one not."""
    kind, _, name = rule.what.partition(":")
    stages = [row for row in comparison.stages if getattr(row, kind) == name]
    rows: list[StageShift | ServiceShift] = [*stages]
    if kind == "service":
        rows = [row for row in comparison.services if row.service == name]
    if not rows:
        return Verdict(rule, True, f"{kind} {name} cannot be judged: it is on neither side")
    whole_ms = sum(row.baseline_ms for row in stages)
    over = [row for row in rows if row.excess_ms > _limit_ms(rule, _baseline_ms(row, whole_ms))]
    sure = [row for row in over if row.significant]
    worst = max(sure or over or rows, key=lambda row: row.excess_ms)
    moved = f"{kind} {name} takes {milliseconds(worst.excess_ms)} more per request"
    if not over:
        return Verdict(rule, False, f"{moved}, within the limit")
    return Verdict(rule, True, moved) if sure else Verdict(rule, False, f"{moved}, which can be chance")


def _baseline_ms(row: StageShift | ServiceShift, whole_ms: float) -> float:
    return row.baseline_ms if isinstance(row, StageShift) else whole_ms


def _limit_ms(rule: Rule, baseline_ms: float) -> float:
    return rule.limit * baseline_ms if rule.is_share else rule.limit
