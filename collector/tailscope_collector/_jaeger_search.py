"""What Jaeger's user interface and Grafana ask for, as values for our queries.

Owns the parameters of `/api/traces` and `/api/dependencies` as Jaeger's query service reads them: times in
microseconds (dependencies: milliseconds), durations like `1.5s` or `100ms`, tags as a JSON object or
`key:value`. Values only: nothing of them ever becomes SQL.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, Final, cast

from tailscope_analyzer import QueryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.datastructures import QueryParams

LIMIT: Final = 100
MOST_TRACES: Final = 1_500
LOOKBACK_S: Final = 2 * 86_400
DEPENDENCIES_LOOKBACK_S: Final = 86_400
MOST_TAGS: Final = 32
FAR_US: Final = 2**62 // 1000
"""About the year 2116: times beyond it, and before 1970, are cut to it."""

_NS: Final = {
    "ns": 1,
    "us": 1e3,
    "µs": 1e3,
    "μs": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "m": 60e9,
    "h": 3600e9,
    "d": 86400e9,
}
_PIECE: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h|d)")
_DURATION: Final = re.compile(rf"(?:{_PIECE.pattern})+")
_ID: Final = re.compile(r"[0-9a-fA-F]{1,32}")


def search_values(asked: QueryParams, *, now_s: float | None = None) -> dict[str, Any]:
    """Return the values of the query `jaeger_search`; raises QueryError in Jaeger's words."""
    service = asked.get("service")
    if not service:
        raise QueryError("parameter 'service' is required", code="bad_request")
    least, most = _duration(asked, "minDuration"), _duration(asked, "maxDuration")
    if least and most and most < least:
        raise QueryError("'maxDuration' should be greater than 'minDuration'", code="bad_request")
    now = time.time() if now_s is None else now_s
    until = _number(asked, "end", round(now * 1e6))
    tags = _tags(asked)
    return {
        "service": service,
        "operation": asked.get("operation") or None,
        "since_us": _bounded(_number(asked, "start", until - _lookback_us(asked))),
        "until_us": _bounded(until),
        "least_ns": least,
        "most_ns": most,
        "kind": tags.pop("span.kind", None),
        "status": _status(tags),
        "scope": tags.pop("otel.scope.name", None) or tags.pop("otel.library.name", None),
        "keys": list(tags),
        "texts": list(tags.values()),
        "most": min(max(_number(asked, "limit", LIMIT), 0), MOST_TRACES),
    }


def dependency_values(asked: QueryParams, *, now_s: float | None = None) -> dict[str, Any]:
    """Return the times of the query `jaeger_dependencies`; raises QueryError in Jaeger's words."""
    now = time.time() if now_s is None else now_s
    until_ms = _number(asked, "endTs", round(now * 1e3))
    lookback_ms = _number(asked, "lookback", DEPENDENCIES_LOOKBACK_S * 1000)
    return {
        "since_us": _bounded((until_ms - lookback_ms) * 1000),
        "until_us": _bounded(until_ms * 1000),
        "service": asked.get("service") or None,
    }


def trace_ids(given: Sequence[str]) -> list[str]:
    """Return trace ids as they are stored; Jaeger's may be of 64 bits and lack leading zeros.

    Raises QueryError for what is none.
    """
    for text in given:
        if not _ID.fullmatch(text):
            raise QueryError(f"cannot parse traceID param: {text[:64]!r} is no hex number of 128 bits")
    return [padded(text) for text in given]


def padded(trace_id: str) -> str:
    """Return a trace id in lower case with its leading zeros; what is none comes back as it is."""
    wanted = trace_id.strip().lower()
    return wanted.zfill(32) if _ID.fullmatch(wanted) else wanted


def _number(asked: QueryParams, name: str, default: int) -> int:
    text = asked.get(name)
    if not text:
        return default
    try:
        return int(text[:20])
    except ValueError as error:
        raise QueryError(f"unable to parse param '{name}': {text[:64]!r} is no integer") from error


def _bounded(time_us: int) -> int:
    return min(max(time_us, 0), FAR_US)


def _duration(asked: QueryParams, name: str) -> int | None:
    text = asked.get(name)
    if not text:
        return None
    nanoseconds = _nanoseconds(text)
    if nanoseconds is None:
        raise QueryError(
            f"unable to parse param '{name}': {text[:64]!r} is no duration such as 1.5s or 100ms"
        )
    return nanoseconds


def _nanoseconds(text: str) -> int | None:
    if len(text) > 40 or not _DURATION.fullmatch(text):
        return None
    total = sum(float(number) * _NS[unit] for number, unit in _PIECE.findall(text))
    return round(min(total, 2**62))


def _lookback_us(asked: QueryParams) -> int:
    """Return how far back `lookback` reaches; user interfaces send words such as `custom` beside a start."""
    nanoseconds = _nanoseconds(asked.get("lookback", ""))
    return LOOKBACK_S * 1_000_000 if nanoseconds is None else nanoseconds // 1000


def _status(tags: dict[str, str]) -> list[str] | None:
    """Take the tags that Jaeger makes of a status, and return which statuses they mean."""
    wanted: list[set[str]] = []
    if "error" in tags:
        failed = tags.pop("error").lower() in {"true", "1"}
        wanted.append({"error"} if failed else {"unset", "ok"})
    if "otel.status_code" in tags:
        wanted.append({tags.pop("otel.status_code").lower()})
    return sorted(frozenset(wanted[0]).intersection(*wanted)) if wanted else None


def _tags(asked: QueryParams) -> dict[str, str]:
    tags: dict[str, str] = {}
    for text in asked.getlist("tag"):
        key, colon, value = text.partition(":")
        if not colon:
            raise QueryError(f"malformed 'tag' parameter, expecting key:value, received: {text[:64]!r}")
        tags[key] = value
    for text in asked.getlist("tags"):
        tags.update(_json_tags(text))
    if len(tags) > MOST_TAGS:
        raise QueryError(f"{len(tags)} tags were asked for; {MOST_TAGS} is the most")
    return tags


def _json_tags(text: str) -> dict[str, str]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise QueryError("malformed 'tags' parameter, cannot unmarshal JSON") from error
    if not isinstance(read, dict):
        raise QueryError("malformed 'tags' parameter, it is no JSON object")
    fields = cast("dict[str, Any]", read)  # keys of JSON objects are text
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in fields.items()}
