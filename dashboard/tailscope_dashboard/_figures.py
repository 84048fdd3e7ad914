"""Figures as a reader wants them: milliseconds, counts, shares, times, outcomes. Owns formatting alone."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

MISSING: Final = "\u2013"
MINUS: Final = "\u2212"
"""The dash that stands for no value, and the sign that is as wide as a plus."""


def milliseconds(value: float | None, *, signed: bool = False) -> str:
    """Write a duration in the unit that keeps three digits: 0.412 ms, 48.3 ms, 812 ms, 12.4 s."""
    if value is None or not math.isfinite(value):
        return MISSING
    sign = "+" if signed and value >= 0 else ""
    size = abs(value)
    if size >= 10_000:
        return f"{sign}{value / 1000:,.1f} s".replace("-", MINUS)
    if round(size, 3) == 0:
        return f"{sign}0 ms"
    digits = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{sign}{value:,.{digits}f} ms".replace("-", MINUS)


def count(value: float | None) -> str:
    """Write a count in groups of thousands: 1,204,311."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{int(value):,}"


def share(value: float | None, *, digits: int = 0) -> str:
    """Write a fraction as a percentage; a share that rounds to nothing but is not nothing reads '< 0.1 %'."""
    if value is None or not math.isfinite(value):
        return MISSING
    percent = value * 100
    smallest = 10.0**-digits
    if percent != 0 and abs(percent) <= smallest / 2:
        return f"< {smallest:g} %" if percent > 0 else f"> {MINUS}{smallest:g} %"
    return f"{percent:.{digits}f} %".replace("-", MINUS)


def interval(low_ms: float | None, high_ms: float | None) -> str:
    """Write a 95 % interval of a change: '+96.2 ms to +128.1 ms'."""
    if low_ms is None or high_ms is None:
        return MISSING
    return f"{milliseconds(low_ms, signed=True)} to {milliseconds(high_ms, signed=True)}"


def rate(requests: int, seconds: float) -> str:
    """Write requests a second, or by the unit of which there is at least one; none below a second in all."""
    if seconds < 1:
        return MISSING
    for unit, length_s in (("s", 1), ("min", 60), ("h", 3600), ("day", 86_400)):
        if requests * length_s >= seconds:
            return f"{requests * length_s / seconds:,.1f} /{unit}"
    return f"{requests * 86_400 / seconds:.2g} /day"


def clock(when: datetime, *, seconds: bool = True) -> str:
    """Write a time in UTC: 2026-11-30 13:05:09."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def time_of_day(when: datetime) -> str:
    """Write the time of day in UTC, to the millisecond: 13:05:09.120."""
    return when.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]


def span_of_time(since: datetime, until: datetime) -> str:
    """Write a window: the date once when both ends share it."""
    first, last = since.astimezone(UTC), until.astimezone(UTC)
    end = clock(last) if first.date() != last.date() else last.strftime("%H:%M:%S")
    return f"{clock(first)} {MISSING} {end} UTC"


def step(microseconds: int) -> str:
    """Write the length of a step of a chart: 250 ms, 30 s, 5 min, 2 h."""
    for size, unit in ((3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s")):
        if microseconds >= size and microseconds % size == 0:
            return f"{microseconds // size} {unit}"
    return f"{microseconds / 1000:g} ms"


def plural(number: int, noun: str) -> str:
    """Write a count with its noun: 1 row, 2 rows."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def length(window: timedelta) -> str:
    """Write how long a window is: 45 s, 12 min, 3.5 h, 2.0 d."""
    seconds = window.total_seconds()
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def nanoseconds(value: int | None) -> str:
    """Write a duration that is held in nanoseconds, below 0.1 ms in a smaller unit: 41 ns, 1.5 µs."""
    if value is None:
        return MISSING
    if value == 0 or abs(value) >= 100_000:
        return milliseconds(value / 1e6)
    text = f"{value} ns" if abs(value) < 1000 else f"{value / 1000:.3g} µs"
    return text.replace("-", MINUS)


def outcome(status: str | None) -> str | None:
    """Write the status of a span: OpenTelemetry's 'unset' means that nobody reported an error."""
    return "ok (unset)" if status == "unset" else status
