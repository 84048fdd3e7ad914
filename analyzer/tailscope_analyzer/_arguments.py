"""Reading what people type: times and percentiles, the same in commands and in HTTP queries.

Owns the accepted spellings and their error messages. The current time is an argument.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tailscope_analyzer._errors import InputError

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
RELATIVE = re.compile(r"-?(\d+(?:\.\d+)?)\s*([smhdw])")


def parse_time(text: str, *, now: datetime) -> datetime:
    """Read `15m`, `2h`, `3d` (that long before now), `now`, a date, or an ISO 8601 time.

    A time without a zone is UTC. Raises InputError for anything else.
    """
    plain = text.strip()
    if plain.lower() == "now":
        return now
    relative = RELATIVE.fullmatch(plain.lower())
    try:
        if relative:
            return now - timedelta(**{UNITS[relative[2]]: float(relative[1])})
        when = datetime.fromisoformat(plain)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"Not a time: {text!r}. Write 15m, 2h or 3d (that long ago), "
            "or ISO 8601 such as 2026-03-01T12:00:00Z."
        ) from error
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def parse_percentile(text: str) -> float:
    """Read `99`, `p99` or `99.9` as 0.99 and 0.999; a value of at most 1 is a quantile already.

    Raises InputError when it is no number, or leaves no tail: 50 or less, 100 or more.
    """
    try:
        value = float(text.strip().lower().removeprefix("p").removesuffix("%"))
    except ValueError:
        value = float("nan")
    q = value if value <= 1 else round(value / 100, 12)
    if not 0.5 < q < 1:
        raise InputError(
            f"Not a percentile with a tail: {text!r}. Give one between 50 and 100, such as 99 or 99.9."
        )
    return q
