"""Who may send spans and who may ask: bearer tokens, ingest and query apart.

Owns the token files, the comparison and the words of a refusal. Never writes a token to a log, an error or an
answer, and keeps digests only.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from tailscope_collector.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

Side = Literal["ingest", "query"]

MIN_CHARS: Final = 16
"""Shorter tokens can be guessed; `openssl rand -hex 32` gives 64 characters."""

LOOK_S: Final = 1.0
"""How often a token file is looked at, at most: a stat costs 2 us, an export 100."""

FLAGS: Final[dict[Side, str]] = {"ingest": "--ingest-token-file", "query": "--query-token-file"}
INGEST_PATHS: Final = ("/v1/", "/api/v2/spans")
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Asked by supervisors, which have no token; they say whether the process runs and nothing of its data."""

_Stamp = tuple[int, int, int]


def side_of(path: str) -> Side | None:
    """Return which token a path of the HTTP port wants; None where it wants none.

    A path that nobody serves wants the query token: what is added later is closed until it is opened here.
    """
    if path in OPEN_PATHS:
        return None
    return "ingest" if path.startswith(INGEST_PATHS) else "query"


class TokenFile:
    """The tokens of one file, one a line; read again when the file changes, so that tokens can be rotated.

    Raises AccessError where the file cannot be read or holds no usable token.
    """

    def __init__(
        self, path: str, *, flag: str = "--token-file", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = Path(path)
        self._flag = flag
        self._clock = clock
        self._looked_s = clock()
        self._stamp, self._digests = self._read()

    def admits(self, token: bytes) -> bool:
        """Whether a token is in the file; takes as long for a wrong one as for a right one."""
        if self._clock() - self._looked_s >= LOOK_S:
            self._looked_s = self._clock()
            self._look()
        return _is_among(token, self._digests)

    def _look(self) -> None:
        """Read the file again where it has changed; one that has become unusable changes nothing."""
        try:
            if _stamp(self._path) == self._stamp:
                return
            self._stamp, self._digests = self._read()
        except (AccessError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            log.warning("the tokens of %s are kept as they were: %s", self._path, reason)
        else:
            log.warning("%s was read again: %d tokens", self._path, len(self._digests))

    def _read(self) -> tuple[_Stamp, tuple[bytes, ...]]:
        try:
            stamp = _stamp(self._path)
            lines = self._path.read_bytes().splitlines()
            if self._path.stat().st_mode & stat.S_IROTH:
                log.warning("%s can be read by every user of this machine; chmod 600 it", self._path)
        except OSError as error:
            raise AccessError(f"Cannot read {self._flag} {self._path}: {error.strerror}.") from error
        tokens = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(b"#")]
        for number, token in enumerate(tokens, start=1):
            if len(token) < MIN_CHARS or not all(0x21 <= byte <= 0x7E for byte in token):
                raise AccessError(
                    f"Token {number} of {self._path} is not {MIN_CHARS} or more visible ASCII characters "
                    "without blanks; make one with: openssl rand -hex 32"
                )
        if not tokens:
            raise AccessError(
                f"{self._path} holds no token; put one on each line, e.g. from: openssl rand -hex 32"
            )
        return stamp, tuple(_digest(token) for token in tokens)


class Access:
    """Whom a collector answers; without token files, everybody.

    Where tokens are asked for, the collector has some of its own beside them, for the user who owns the data
    directory (`owner_tokens`); they end with the process.
    """

    def __init__(self, *, ingest: TokenFile | None = None, query: TokenFile | None = None) -> None:
        self._files: dict[Side, TokenFile | None] = {"ingest": ingest, "query": query}
        self.owner_tokens: dict[Side, str] = {
            side: secrets.token_urlsafe(32) for side, file in self._files.items() if file is not None
        }
        self._owner = {side: (_digest(token.encode()),) for side, token in self.owner_tokens.items()}

    def asks(self, side: Side) -> bool:
        """Whether this side wants a token."""
        return self._files[side] is not None

    def refusal(self, side: Side, authorization: bytes | None) -> str | None:
        """Return why a request with this Authorization is not served; None where it is."""
        file = self._files[side]
        if file is None:
            return None
        if not authorization:
            return f"This needs the collector's {side} token: send Authorization: Bearer TOKEN."
        scheme, _, token = authorization.strip().partition(b" ")
        token = token.strip()
        # Both are asked, always: which of them knows a token is not to be heard from the time it takes.
        known = file.admits(token) | _is_among(token, self._owner[side])
        if known and scheme.lower() == b"bearer":
            return None
        return f"The token is not the collector's {side} token, or was replaced."


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _is_among(token: bytes, digests: tuple[bytes, ...]) -> bool:
    """Compare with all of them, in a time that does not depend on the token."""
    digest = _digest(token)
    found = False
    for known in digests:
        found |= hmac.compare_digest(known, digest)
    return found


def _stamp(path: Path) -> _Stamp:
    seen = path.stat()
    return seen.st_mtime_ns, seen.st_ino, seen.st_size
