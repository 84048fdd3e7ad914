"""The documentation of the causes, made of the detectors themselves.

Owns the text of docs/causes.md; a test holds the file against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._causes._cause import Detector

OPENING: Final = """\
# Causes: what a report names, and on what grounds

    tailscope report --since 1h --format json | jq '.causes[] | {cause, share_of_tail, confidence, summary}'

```python
import tailscope_analyzer as ta

report = ta.report(ta.connect("http://127.0.0.1:4318").traces(service="ranker"))
for cause in report.causes:
    print(cause["cause"], f"{cause['share_of_tail']:.0%}", cause["confidence"], cause["summary"])
```

A cause explains milliseconds that the ledger measured, request by request. Its share is what the tail has
more of them than the typical request, with the same weights as the stages of the report, so shares can be
added up: two causes never explain the same millisecond. Direct evidence (an event, an attribute) takes
its time first, then the more specific pattern. `causes` is empty where nothing is significant, and that
is an answer.

| field | what it is |
|---|---|
| `cause` | one of the names below |
| `service`, `stage` | where most of its time was spent |
| `excess_ms`, `share_of_tail`, `ci95_ms` | what it adds to the percentile; interval of 400 resamples |
| `confidence` | `confirmed`: the data says so. `likely`: a pattern does. `possible`: others fit too |
| `requests` | how many it touches; `traces` names those that it costs most |
| `evidence` | what was seen, each with a query over the public views that shows it |
| `fix` | what to try, with its source |

A cause is said if it explains at least 10 % of the excess and 5 % of a typical request, if the interval of
that is above zero, and if chance would show such a pattern in less than 5 % of healthy windows (Bonferroni
over the patterns seen). The largest comes first; `unattributed`, said from 30 % on, comes after all others.
Below 300 requests causes are those of p95, below 60 those of p90; a note says so. Above 50,000 requests
they are sought in 20,000 of them: the slowest, and four whole stretches of the others.
"""


def guide(detectors: Sequence[Detector]) -> str:
    """Return the page, with a section per cause."""
    sections = [_section(detector) for detector in detectors]
    return "\n".join([OPENING, *sections])


def _section(detector: Detector) -> str:
    looks_for = detector.looks_for[:1].upper() + detector.looks_for[1:].rstrip(".")
    lines = [f"## {detector.cause}", "", f"{looks_for}.", ""]
    lines += [f"- Not `{other}`: {why}." for other, why in detector.not_confused_with]
    lines += [f"- Try: {fix.text.rstrip('.')}. ({_source(fix.source)})" for fix in detector.fixes]
    return "\n".join([*lines, ""])


def _source(source: str) -> str:
    return f"<{source}>" if source.startswith("http") else source
