"""The gate of the HTTP port: what is turned away before its body is read and before anything handles it.

Owns the order of the checks (head, Host, origin, token) and the answers. Knows no route beyond whether its
path sends or asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from tailscope_collector._guards._access import side_of
from tailscope_collector._guards._connections import HEAD_BYTES, HEADERS
from tailscope_collector._rpc_status import write_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from tailscope_collector._guards._access import Access
    from tailscope_collector._guards._hosts import Hosts

CHALLENGE: Final = 'Bearer realm="tailscope"'
PERMISSION_DENIED, UNAUTHENTICATED = 7, 16
"""google.rpc codes, in which OTLP words a refusal."""


class Gate:
    """An ASGI application in front of another; `denied` is told the reason of each refusal."""

    def __init__(self, app: ASGIApp, *, access: Access, hosts: Hosts, denied: Callable[[str], None]) -> None:
        self._app = app
        self._access = access
        self._hosts = hosts
        self._denied = denied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if len(headers.raw) > HEADERS or _size(scope) > HEAD_BYTES:
            return self._answer(
                scope, 431, "head_too_large", f"A head has at most {HEADERS} headers and {HEAD_BYTES} bytes."
            )
        side = side_of(scope["path"])
        if side is None:
            return None
        if not self._access.asks(side) and (foreign := self._foreign(headers)):
            return self._answer(scope, 403, "forbidden", foreign)
        if wrong := self._access.refusal(side, _authorization(headers)):
            return self._answer(scope, 401, "unauthenticated", wrong)
        return None

    def _foreign(self, headers: Headers) -> str | None:
        """Return why this comes from a page that is not ours; a token would say who sent it."""
        host = headers.get("host", "localhost")  # HTTP/1.0; no browser leaves it out
        if not self._hosts.allows(host):
            return (
                f"The Host header names {host[:100]!r}, which is no address of this collector. If it is its "
                "name, start it with --allowed-host NAME, or with tokens."
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "Pages of other origins are not answered; ask from a server, or put a proxy in front."
        mode = headers.get("sec-fetch-mode")
        if headers.get("sec-fetch-site") in {"cross-site", "same-site"} and mode != "navigate":
            return "Pages of other sites are not answered; ask from a server, or put a proxy in front."
        return None

    def _answer(self, scope: Scope, status: int, code: str, message: str) -> Response:
        self._denied(code)
        challenge = {"WWW-Authenticate": CHALLENGE} if status == 401 else {}
        if side_of(scope["path"]) == "ingest":
            return _in_words_of_otlp(scope, status, message, challenge)
        return JSONResponse({"error": {"code": code, "message": message}}, status, challenge)


def _in_words_of_otlp(scope: Scope, status: int, message: str, challenge: dict[str, str]) -> Response:
    code = UNAUTHENTICATED if status == 401 else PERMISSION_DENIED
    if "json" in Headers(scope=scope).get("content-type", ""):
        return JSONResponse({"code": code, "message": message}, status, challenge)
    body = write_status(code, message)
    return Response(body, status, challenge, media_type="application/x-protobuf")


def _authorization(headers: Headers) -> bytes | None:
    given = headers.get("authorization")
    return None if given is None else given.encode("latin-1")


def _size(scope: Scope) -> int:
    """Return the bytes of a head, nearly: what surrounds names and values is 4 bytes each."""
    sizes = (len(name) + len(value) + 4 for name, value in scope["headers"])
    return sum(sizes) + len(scope.get("raw_path") or b"") + len(scope["query_string"])
