"""The causes of a report as a reader wants them: words, milliseconds, confidence, evidence, what to try.

Owns reading `Report.causes`, whose rows are JSON, and the words for confidence. Judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope_analyzer import Report

Colour = Literal["green", "orange", "gray"]


@dataclass(frozen=True, slots=True)
class Confidence:
    """How sure the analyzer is: a word, what it rests on, and a colour and an icon that say the same."""

    word: str
    grounds: str
    colour: Colour
    icon: str


_CONFIDENCE: Final = {
    "confirmed": Confidence("Confirmed", "The data says so.", "green", ":material/verified:"),
    "likely": Confidence("Likely", "A pattern says so.", "orange", ":material/trending_up:"),
    "possible": Confidence("Possible", "Other causes fit, too.", "gray", ":material/help:"),
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen, and the SQL that shows it."""

    text: str
    sql: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What to try, and who says so; `link` is set where that is a page."""

    text: str
    source: str

    @property
    def link(self) -> str | None:
        """The address of the source."""
        return self.source if self.source.startswith("https://") else None


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, ready to be written down; texts may hold names of others and are never Markdown."""

    title: str
    where: str
    excess_ms: float
    interval_ms: tuple[float, float] | None
    share: float
    confidence: Confidence
    summary: str
    requests: int
    evidence: tuple[Evidence, ...]
    advice: tuple[Advice, ...]
    traces: tuple[str, ...]


def causes(report: Report) -> list[Cause]:
    """Return the causes of a report, the largest first."""
    return [_cause(row) for row in report.causes]


def _cause(row: Mapping[str, Any]) -> Cause:
    name = str(row["cause"])
    place = [str(part) for part in (row.get("service"), row.get("stage")) if part]
    return Cause(
        title=_title(name),
        where=" · ".join(place),
        excess_ms=float(row["excess_ms"]),
        interval_ms=_pair(row.get("ci95_ms")),
        share=float(row["share_of_tail"]),
        confidence=_CONFIDENCE.get(str(row.get("confidence")), _CONFIDENCE["possible"]),
        summary=str(row.get("summary", "")),
        requests=int(row.get("requests") or len(row.get("traces", ()))),
        evidence=tuple(
            Evidence(str(proof["text"]), str(proof.get("sql", ""))) for proof in row.get("evidence", ())
        ),
        advice=tuple(Advice(str(fix["text"]), str(fix.get("source", ""))) for fix in row.get("fix", ())),
        traces=tuple(str(trace) for trace in row.get("traces", ())),
    )


def _title(name: str) -> str:
    words = name.replace("_", " ")
    short = {"gc": "GC", "cpu": "CPU", "gpu": "GPU", "kv": "KV", "jit": "JIT"}
    first, _, rest = words.partition(" ")
    return f"{short.get(first, first.capitalize())} {rest}".strip()


def _pair(values: Sequence[float] | None) -> tuple[float, float] | None:
    return None if values is None else (float(values[0]), float(values[1]))
