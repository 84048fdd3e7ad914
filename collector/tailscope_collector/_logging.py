"""The log of `tailscope serve`: lines for people, or one JSON object a line for machines.

Owns both forms, which loggers speak, and how often one of them repeats itself. What is logged beside a
message stands in `extra`; nothing of a span belongs there.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

Form = Literal["text", "json"]
FORMS: Final[tuple[Form, ...]] = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
COMMAND: Final = "tailscope.serve"
"""The logger of the command: what it says is meant for people, and needs no name in front."""

OURS: Final = ("tailscope", "tailscope_collector", "tailscope_analyzer")
"""Loggers that `--log-level` is about; of the others only warnings are of interest."""

BURST: Final = 5
QUIET_S: Final = 60.0
"""So many records of one kind are written in so long a time."""

KINDS: Final = 512
"""Kinds of records that are counted."""

MAX_TEXT: Final = 4096
"""Characters of one value: an error of the database can hold a whole query."""

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

log = logging.getLogger(COMMAND)


class Throttle(logging.Filter):
    """Lets through a few records of one kind a minute: a full disk fails many commits a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._guard = threading.Lock()
        # kind: (since when it is counted, how many came since)
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written; the first after a quiet while says in `unsaid` how many were not."""
        key, now = (record.name, str(record.msg)), self._clock()
        with self._guard:
            since, count = self._seen.get(key, (now, 0))
            if now - since >= QUIET_S:
                if count > BURST:
                    record.unsaid = count - BURST
                since, count = now, 0
            if key not in self._seen and len(self._seen) >= KINDS:
                self._seen.clear()
            self._seen[key] = since, count + 1
        return count < BURST


class TextFormatter(logging.Formatter):
    """`LEVEL logger: message`; of the command itself the message alone."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one record as text."""
        text = super().format(record)
        unsaid: int = getattr(record, "unsaid", 0)
        text += f" ({unsaid} more of these in the last minute)" if unsaid else ""
        return text if record.name == COMMAND else f"{record.levelname} {record.name}: {text}"


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, message, what stood in `extra`, and an error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one record as a line of JSON."""
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        for name, value in vars(record).items():
            if name not in _STANDARD and name not in told:
                told[name] = value if _is_plain(value) else _cut(str(value))
        if record.exc_info and record.exc_info[0] is not None:
            told["error"] = {
                "type": record.exc_info[0].__name__,
                "message": _cut(str(record.exc_info[1])),
                "stack": _cut(self.formatException(record.exc_info)),
            }
        return json.dumps(told, ensure_ascii=False)


def set_up_logging(form: Form, level: str) -> logging.Formatter:
    """Let our loggers speak on stderr from a level on, the others from warnings on."""
    formatter = JsonFormatter() if form == "json" else TextFormatter()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(Throttle())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
    sys.excepthook = _uncaught
    threading.excepthook = lambda ended: log.critical(
        "a thread ended: %s",
        ended.thread.name if ended.thread else "",
        exc_info=(ended.exc_type, ended.exc_value or ended.exc_type(), ended.exc_traceback),
    )
    return formatter


def line(formatter: logging.Formatter, message: str) -> bytes:
    """Return a line as the log would have it, for where no lock may be taken."""
    record = logging.LogRecord(COMMAND, logging.WARNING, "", 0, message, None, None)
    return formatter.format(record).encode() + b"\n"


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("the collector ended", exc_info=(kind, error, trace))


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"
