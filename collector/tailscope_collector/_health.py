"""Whether the collector runs as it should and whether it takes spans now, with the reasons where it does not.

Owns `/healthz` (only a restart helps) and `/readyz` (send elsewhere, or later). Changes nothing.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.responses import JSONResponse, PlainTextResponse, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from tailscope_collector._counters import Counters
    from tailscope_collector._intake import Intake
    from tailscope_collector._metric_intake import MetricIntake
    from tailscope_collector._query._queries import Queries
    from tailscope_collector._store import Store

Stage = Literal["starting", "serving", "stopping"]

FULL_SHARE: Final = 0.9
"""A queue that is so full refuses the next larger request."""

FAILED_S: Final = 10.0
"""How long a failed commit counts. Not longer: where nothing is sent because we are not ready, no commit
could ever succeed."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why spans are not taken: a word for machines, a sentence for people."""

    code: str
    message: str


@dataclass(slots=True)
class Health:
    """Looks at the parts of a collector; thread-safe."""

    store: Store
    spans: Intake
    points: MetricIntake
    queries: Queries
    counters: Counters
    stage: Stage = "starting"
    _started_s: float = field(default_factory=time.monotonic)
    checks: list[Callable[[], Reason | None]] = field(default_factory=list["Callable[[], Reason | None]"])
    """What other parts have to say."""

    def is_broken(self) -> bool:
        """Whether the database cannot go on, or its directory is gone."""
        if self.spans.is_broken or self.points.is_broken or self.queries.is_broken:
            return True
        # Not left to the next commit: where nothing is sent because we are not ready, there is none.
        return self.stage == "serving" and not self.store.directory.is_in_place()

    def reasons(self) -> list[Reason]:
        """Return why spans are not taken now; nothing where they are."""
        if self.stage != "serving":
            return [Reason(self.stage, f"The collector is {self.stage}.")]
        if self.is_broken():
            return [Reason("broken", "The database failed or its directory is gone; start again.")]
        own = (self._queue, self._room, self._commits)
        return [reason for check in (*own, *self.checks) if (reason := check()) is not None]

    def free_bytes(self) -> int:
        """Return the free room on the disk of the data directory; raises OSError where it is gone."""
        return shutil.disk_usage(self.store.directory.path).free

    def about(self) -> dict[str, Any]:
        """Return what `tailscope doctor` wants to know, as plain values."""
        try:
            free_bytes = self.free_bytes()
        except OSError:
            free_bytes = None
        return {
            "health": self.as_dict(),
            "uptime_s": round(time.monotonic() - self._started_s, 1),
            "queue": {"bytes": self.spans.held_bytes, "capacity_bytes": self.spans.settings.queue_bytes},
            "disk": {"free_bytes": free_bytes},
            "counters": self.counters.as_dict(),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        reasons = self.reasons()
        return {"ready": not reasons, "reasons": [asdict(reason) for reason in reasons]}

    async def healthz(self, _request: Request) -> Response:
        """Say whether the process runs as it should; if not, only a restart helps."""
        if self.is_broken():
            return PlainTextResponse("the database failed or its directory is gone; start again\n", 503)
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        """Say whether spans are taken and if not, why; in JSON where Accept asks for it."""
        told = self.as_dict()
        status = 200 if told["ready"] else 503
        if "json" in request.headers.get("accept", "").lower():
            return JSONResponse(told, status)
        lines = [f"not ready: {reason['code']}: {reason['message']}\n" for reason in told["reasons"]]
        return PlainTextResponse("".join(lines) or "ready\n", status)

    def _queue(self) -> Reason | None:
        held, bound = self.spans.held_bytes, self.spans.settings.queue_bytes
        if held < FULL_SHARE * bound:
            return None
        return Reason("queue_full", f"The queue holds {held} of {bound} bytes; see --queue-mb.")

    def _room(self) -> Reason | None:
        try:
            if self.store.has_room():
                return None
        except OSError as error:
            return Reason("disk", f"The data directory cannot be looked at: {error.strerror}.")
        return Reason("disk", "The disk of the data directory is nearly full: make room, or keep less.")

    def _commits(self) -> Reason | None:
        failed_s = self.counters.seconds_since("commits_failed_total")
        if failed_s > FAILED_S or failed_s > self.counters.seconds_since("commits_total"):
            return None
        return Reason("commits_fail", f"A commit failed {failed_s:.0f} s ago; the log says why.")
