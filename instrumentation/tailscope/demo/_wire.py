"""What the demo's processes say to each other: names, ports and the body of a request.

Owns the shared words, so that the load needs no model and the command needs no web framework.
"""

from __future__ import annotations

from typing import Final, TypedDict

RANKER: Final = "ranker"
ACCOUNTS: Final = "accounts"
RANKER_PORT: Final = 8000
ACCOUNTS_PORT: Final = 8100

ONLINE_LANE: Final = "online"
BULK_LANE: Final = "bulk"

FAR_MS: Final = (80.0, 800.0)
"""The least and most that a look-up on the far accounts replica waits; the same each time for one account.

Spread evenly over the logarithm, so that some stand near the p95 of a fast machine and of a busy one."""


class RankRequest(TypedDict):
    """The body of POST /v1/rank."""

    query: str
    documents: list[str]
    lane: str


class Calibration(TypedDict):
    """What one ranker instance measured of itself before it took requests, in milliseconds."""

    document_ms: float
    inference_ms: float
    gc_pause_ms: float
