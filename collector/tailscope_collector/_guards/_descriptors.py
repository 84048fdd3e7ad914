"""File descriptors: a connection is one, and the store needs some.

Owns the raise of the process's limit and its division between the two ports.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

RESERVED: Final = 512
"""For the database, its log, segments under query, threads and the answers to `--data`."""

LEAST: Final = 64
"""Connections that each port has, however low the limit is."""


FEW: Final = 512
"""Below this the operator is told: 'ulimit -n' or LimitNOFILE= is lower than any default of today."""


@dataclass(frozen=True, slots=True)
class Places:
    """How many connections each port may have, and the limit of the process that this comes from."""

    http: int
    grpc: int
    limit: int


def places(wanted: int) -> Places:
    """Raise the soft limit to the hard one; give each port as many as `wanted`, or half of what there is."""
    limit = _raised()
    room = max(limit - RESERVED, 2 * LEAST)
    http = min(wanted, room // 2)
    # With fewer than a few hundred, idle senders may push each other out.
    level = logging.WARNING if http < FEW else logging.DEBUG
    log.log(level, "open files: %d, of which up to %d are HTTP connections (wanted: %d)", limit, http, wanted)
    return Places(http, min(wanted, room - http), limit)


def _raised() -> int:
    """Return the soft limit after it was raised as far as an ordinary user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return soft  # macOS says "unlimited" and takes no such number
    return min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
