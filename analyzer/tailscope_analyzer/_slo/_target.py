"""What a service promises: targets as people write them, and those of known applications.

Owns the spelling (`p99<200ms`, `99%<200ms`, `errors<0.1%`), the presets and periods. Judges nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Final, Literal

from tailscope_analyzer._arguments import RELATIVE, UNITS
from tailscope_analyzer._errors import InputError

PRESETS: Final = {"voice": "p99<100ms", "recommendation": "p99<200ms", "real-time": "p99<50ms"}
"""What the field guides call acceptable, held for 99 of 100 requests: a mean would hide the slow ones."""

PERIOD_S: Final = 30 * 86_400.0
"""The usual period of a budget."""

_LATENCY: Final = re.compile(
    r"(?:p(?P<percentile>\d+(?:\.\d+)?)|(?P<share>\d+(?:\.\d+)?)\s*%)"
    r"\s*<\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>ms|s)"
)
_ERRORS: Final = re.compile(r"errors?\s*<\s*(?P<share>\d+(?:\.\d+)?)\s*%")
_WAY_OUT: Final = (
    "Write p99<200ms or 99%<200ms (so many requests are faster), errors<0.1%, "
    f"or the name of a preset: {', '.join(PRESETS)}."
)


@dataclass(frozen=True, slots=True)
class Target:
    """Say which requests are good, and how many of them have to be."""

    text: str
    """As it was written; of a preset what it stands for."""
    kind: Literal["latency", "errors"]
    objective: float
    """Share of good requests that is promised, between 0 and 1, both exclusive."""
    threshold_ms: float | None = None
    """A request is good when it takes less; None for errors, where it is good when it did not fail."""

    @property
    def budget(self) -> float:
        """Share of requests that may be bad."""
        # Rounded, or 99 % would allow 0.010000000000000009.
        return round(1.0 - self.objective, 12)


def parse_target(text: str) -> Target:
    """Read a target or the name of a preset; raises InputError for anything else."""
    plain = text.strip().lower()
    plain = PRESETS.get(plain, plain)
    latency, errors = _LATENCY.fullmatch(plain), _ERRORS.fullmatch(plain)
    if latency:
        share = _of_percentile(latency["percentile"]) if latency["percentile"] else float(latency["share"])
        threshold_ms = float(latency["limit"]) * (1000.0 if latency["unit"] == "s" else 1.0)
        if 0 < share < 100 and threshold_ms > 0:
            return Target(plain, "latency", round(share / 100, 12), threshold_ms)
    if errors and 0 < float(errors["share"]) < 100:
        return Target(plain, "errors", round(1 - float(errors["share"]) / 100, 12))
    near = get_close_matches(plain, PRESETS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"Not a target: {text!r}. {_WAY_OUT}{hint}")


def parse_period(text: str) -> float:
    """Read `30d`, `12h` or `4w` as seconds; raises InputError for anything else and for no time at all."""
    found = RELATIVE.fullmatch(text.strip().lower())
    try:
        seconds = timedelta(**{UNITS[found[2]]: float(found[1])}).total_seconds() if found else 0.0
    except OverflowError:
        seconds = 0.0
    if not seconds > 0:
        raise InputError(f"Not a period: {text!r}. Write 30d, 4w or 12h.")
    return seconds


def _of_percentile(digits: str) -> float:
    """Read `99`, `99.9` and, as it is often written, `999` as a share in %."""
    if "." not in digits and len(digits) > 2 and digits.startswith("9"):
        return float(f"{digits[:2]}.{digits[2:]}")
    return float(digits)
