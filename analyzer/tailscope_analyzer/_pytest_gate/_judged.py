"""What a gate says of requests, held against a baseline.

Owns whether the two can be compared at all, and the words of a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._compare import compare
from tailscope_analyzer._comparison_text import comparison_text
from tailscope_analyzer._gate import judge
from tailscope_analyzer._pytest_gate._control import ratio_of, stretched
from tailscope_analyzer._traces import Traces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope_analyzer._baseline import Baseline
    from tailscope_analyzer._compare import Comparison
    from tailscope_analyzer._gate import Rule

WIDTH: Final = 100
TAIL: Final = 0.95
"""Split where no rule names a percentile of the tail."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Hold what became of a gate."""

    comparison: Comparison | None
    """None where nothing was compared."""
    lines: tuple[str, ...]
    """For the summary: one for each rule, and what to know of the baseline."""
    failure: str
    """Empty where the gate lets pass."""


def judged(
    traces: Traces,
    baseline: Baseline,
    rules: Sequence[Rule],
    *,
    machine: Mapping[str, str],
    control_ms: Sequence[float] = (),
    any_machine: bool = False,
) -> Judged:
    """Compare requests with a baseline, as this machine would have made it, and judge each rule."""
    spans, about = baseline.spans, ""
    if control_ms and baseline.control_ms:
        ratio, low, high = ratio_of(baseline.control_ms, control_ms)
        # The upper end: a rule must not fail on what may be the machine.
        spans = stretched(spans, high)
        about = (
            f"The control takes {ratio:.2f} times as long as it did (95 % interval {low:.2f} to {high:.2f}); "
            f"the baseline counts as {high:.2f} times as slow as it was."
        )
    else:
        about = _differences(baseline.machine, machine)
        if about and not any_machine:
            return Judged(None, (f"not judged. {about}",), f"Not judged. {about} {WAYS_OUT}")
    comparison = compare(Traces.from_spans(spans), traces, percentile=_percentile(rules))
    verdicts = judge(comparison, [*rules])
    lines = [f"{'FAILED' if one.failed else 'passed'} {one.rule.text}: {one.reason}" for one in verdicts]
    failure = ""
    if any(one.failed for one in verdicts):
        text = comparison_text(comparison, verdicts=verdicts, width=WIDTH)
        failure = f"{about}\n\n{text}" if about else text
    return Judged(comparison, (*lines, *([about] if about else ())), failure)


WAYS_OUT: Final = (
    "Record the baseline on this machine, on the commit before the change (pytest "
    "--tailscope-update-baseline); or give both a control; or compare all the same with "
    "--tailscope-any-machine."
)


def _differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Say in what the baseline's machine differs; empty where it does not, or nobody knows."""
    told = [
        f"{key} {there[key]}, here {value}" for key, value in here.items() if there.get(key, value) != value
    ]
    return f"The baseline is of another machine ({'; '.join(told)})." if told else ""


def _percentile(rules: Sequence[Rule]) -> float:
    """Return the furthest percentile that a rule names: `p99` is 0.99, `p999` 0.999."""
    named = [float(f"0.{rule.what[1:]}") for rule in rules if re.fullmatch(r"p9\d+", rule.what)]
    return max(named, default=TAIL)
