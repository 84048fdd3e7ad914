"""A comparison for a terminal and as Markdown.

Owns their layout. The first sentence is the answer; names come from spans and are made readable and escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._report_markdown import escaped, table
from tailscope_analyzer._report_rows import percent, signed
from tailscope_analyzer._report_text import cells_table
from tailscope_analyzer._terminal import LEAST_WIDTH, drawn, folded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from tailscope_analyzer._compare import Comparison
    from tailscope_analyzer._gate import Verdict

MOST_ROWS: Final = 12
LEAST_SHARE: Final = 0.005
Cells = tuple[str, ...]

_LATENCY: Final = ("latency", "baseline", "candidate", "change", "95 % interval", "")
_STAGES: Final = (
    "stage",
    "change",
    "share",
    "95 % interval",
    "baseline",
    "candidate",
    "of it more calls",
    "",
)
_SERVICES: Final = ("service", "change", "share", "95 % interval", "")
_EDGES: Final = ("between", "change", "caller's side", "callee's side", "")
_MIX: Final = ("kind of request", "baseline", "candidate", "mean moved by")


def comparison_text(
    comparison: Comparison, *, verdicts: Sequence[Verdict] = (), width: int = 100, colour: bool = False
) -> str:
    """Draw the comparison `width` columns wide."""
    width = max(width, LEAST_WIDTH)
    parts: list[RenderableType] = [Text(folded(readable(comparison.verdict, 2000), width), "bold")]
    parts += [Text(folded(_rule_line(one), width), "red" if one.failed else "") for one in verdicts]
    parts += [Text(), *(Text(folded(line, width)) for line in _lines(comparison))]
    for names, rows in _tables(comparison):
        if rows:
            parts += [Text(), cells_table(names, rows, width)]
    return drawn(*parts, width=width, colour=colour)


def comparison_markdown(comparison: Comparison, *, verdicts: Sequence[Verdict] = ()) -> str:
    """Write the comparison as Markdown with tables, for a pull request."""
    blocks = ["## What changed", f"**{escaped(comparison.verdict)}**"]
    if verdicts:
        blocks.append("\n".join(f"- {escaped(_rule_line(one))}" for one in verdicts))
    blocks += [escaped(line) for line in _lines(comparison)]
    blocks += [table(names, rows) for names, rows in _tables(comparison) if rows]
    return "\n\n".join(blocks) + "\n"


def _rule_line(one: Verdict) -> str:
    return f"{'FAILED' if one.failed else 'passed'} {readable(one.rule.text)}: {readable(one.reason, 400)}"


def _lines(comparison: Comparison) -> list[str]:
    sides = (("Baseline", comparison.baseline), ("Candidate", comparison.candidate))
    lines = [
        f"{name}: {side.requests:,} requests"
        + (f", from {_time(side.start)} to {_time(side.end)} UTC" if side.start and side.end else "")
        for name, side in sides
    ]
    if comparison.baseline.requests and comparison.candidate.requests:
        lines.append(
            f"Mean {signed(comparison.excess_ms)} = {signed(comparison.like_for_like_ms)} for requests of "
            f"the same kind, {signed(comparison.mix_ms)} because other kinds are asked for."
        )
    return [*lines, *comparison.notes]


def _time(text: str) -> str:
    return text[:23].replace("T", " ").rstrip("Z")


def _tables(comparison: Comparison) -> list[tuple[Cells, list[Cells]]]:
    return [
        (_LATENCY, _latency(comparison)),
        (_STAGES, _stages(comparison)),
        (_SERVICES, _services(comparison)),
        (_EDGES, _edges(comparison)),
        (_MIX, _mix(comparison)),
    ]


def _latency(comparison: Comparison) -> list[Cells]:
    return [
        (
            readable(row.name),
            _ms(row.baseline_ms),
            _ms(row.candidate_ms),
            "-" if row.excess_ms is None else signed(row.excess_ms),
            _range(row.ci95_ms),
            _sure(row.significant),
        )
        for row in comparison.latency
        if row.baseline_ms is not None or row.candidate_ms is not None
    ]


def _stages(comparison: Comparison) -> list[Cells]:
    told = [row for row in comparison.stages if abs(row.share) >= LEAST_SHARE][:MOST_ROWS]
    return [
        (
            readable(f"{row.service} {row.stage}" + ("" if row.category == "self" else f" ({row.category})")),
            signed(row.excess_ms),
            percent(row.share),
            _range(row.ci95_ms),
            milliseconds(row.baseline_ms),
            milliseconds(row.candidate_ms),
            signed(row.calls_ms),
            _sure(row.significant),
        )
        for row in told
    ]


def _services(comparison: Comparison) -> list[Cells]:
    if len(comparison.services) < 2:
        return []
    return [
        (
            readable(row.service),
            signed(row.excess_ms),
            percent(row.share),
            _range(row.ci95_ms),
            _sure(row.significant),
        )
        for row in comparison.services[:MOST_ROWS]
    ]


def _edges(comparison: Comparison) -> list[Cells]:
    told = [row for row in comparison.edges if abs(row.share) >= LEAST_SHARE][:MOST_ROWS]
    return [
        (
            readable(f"{row.caller} -> {row.callee}"),
            signed(row.excess_ms),
            signed(row.caller_ms),
            signed(row.callee_ms),
            "sides not told apart" if row.tied else _sure(row.significant),
        )
        for row in told
    ]


def _mix(comparison: Comparison) -> list[Cells]:
    told = [row for row in comparison.mix if abs(row.candidate_share - row.baseline_share) >= LEAST_SHARE]
    return [
        (
            readable(" ".join(part for part in (row.operation, row.model, row.input_tokens) if part)),
            percent(row.baseline_share),
            percent(row.candidate_share),
            signed(row.mix_ms),
        )
        for row in told[:MOST_ROWS]
    ]


def _ms(value: float | None) -> str:
    return "-" if value is None else milliseconds(value)


def _range(pair: tuple[float, float] | None) -> str:
    return "-" if pair is None else f"{signed(pair[0])} … {signed(pair[1])}"


def _sure(significant: bool) -> str:
    return "significant" if significant else ""
