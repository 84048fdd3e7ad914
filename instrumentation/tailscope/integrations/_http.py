"""The stable HTTP attributes of a server span, from an ASGI scope or a WSGI environment.

Owns names and how they are read. Never records a query string, a cookie or a header that may hold a secret.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from opentelemetry import propagate
from opentelemetry.context.context import Context

from tailscope._current import SPAN_KEY, get_current

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

METHODS: Final = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
ERROR_TYPE: Final = "error.type"
ANSWERED: Final[set[int]] = set()
"""`id` of the requests that have their whole answer, and that are waited for because they may raise."""

PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def known_method(method: str) -> tuple[str, str]:
    """Return the method as attributes and as names of spans have it; what is no method has one value."""
    return (method, method) if method in METHODS else ("_OTHER", "HTTP")


def method_of(scope: Mapping[str, Any]) -> str:
    """Return the first word of a span's name."""
    return "WS" if scope["type"] == "websocket" else known_method(scope.get("method", ""))[1]


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of an ASGI scope; of a repeated one the values, joined as HTTP joins them."""
    found: dict[str, str] = {}
    for key, value in scope.get("headers") or ():
        name, text = key.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]},{text}" if name in found else text
    return found


def asgi_attributes(scope: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes that are known when a request arrives at an ASGI app."""
    scheme = scope.get("scheme", "http")
    found: dict[str, Any] = {"url.scheme": scheme, "url.path": scope.get("path", "")}
    if scope["type"] == "websocket":
        found["network.protocol.name"] = "websocket"
    else:
        add_method(found, scope.get("method", ""))
    if scope.get("http_version"):
        found["network.protocol.version"] = scope["http_version"]
    server = scope.get("server") or (None, None)
    add_address(found, headers.get("host"), server[0], server[1], scheme)
    if scope.get("client"):
        found["client.address"] = scope["client"][0]
    add_headers(found, headers)
    return found


def wsgi_attributes(environ: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are known when a request arrives at a WSGI app."""
    scheme = environ.get("wsgi.url_scheme", "http")
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    # WSGI has the bytes of the path as latin-1.
    found: dict[str, Any] = {
        "url.scheme": scheme,
        "url.path": path.encode("latin-1", "replace").decode("utf-8", "replace"),
    }
    add_method(found, environ.get("REQUEST_METHOD", ""))
    protocol = environ.get("SERVER_PROTOCOL", "")
    if protocol.startswith("HTTP/"):
        found["network.protocol.version"] = protocol.removeprefix("HTTP/")
    port = str(environ.get("SERVER_PORT") or "")  # a bridge from ASGI may have it as a number
    add_address(
        found,
        environ.get("HTTP_HOST"),
        environ.get("SERVER_NAME"),
        int(port) if port.isdigit() else None,
        scheme,
    )
    if environ.get("REMOTE_ADDR"):
        found["client.address"] = environ["REMOTE_ADDR"]
    add_headers(found, wsgi_headers(environ))
    return found


def wsgi_headers(environ: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a WSGI environment."""
    found = {
        key[5:].replace("_", "-").lower(): value for key, value in environ.items() if key.startswith("HTTP_")
    }
    if environ.get("CONTENT_LENGTH"):
        found["content-length"] = environ["CONTENT_LENGTH"]
    return found


def add_method(found: MutableMapping[str, Any], method: str) -> None:
    """Add the method; a strange one is kept beside, because names of spans must be few."""
    found["http.request.method"] = known_method(method)[0]
    if method not in METHODS:
        found["http.request.method_original"] = method


def add_headers(found: MutableMapping[str, Any], headers: Mapping[str, str]) -> None:
    """Add what the client says of itself and of its body."""
    if headers.get("user-agent"):
        found["user_agent.original"] = headers["user-agent"]
    length = headers.get("content-length", "")
    if length.isdigit():
        found["http.request.body.size"] = int(length)


def add_address(
    found: MutableMapping[str, Any], host: str | None, address: str | None, port: int | None, scheme: str
) -> None:
    """Add the name that the client called, or the address of the socket where it named none."""
    if host:
        address, port = parts_of(host, scheme)
    if address:
        found["server.address"] = address
        if port is not None:
            found["server.port"] = port


@lru_cache(maxsize=64)  # a service has few names; the header is the client's word, so the table is bounded
def parts_of(host: str, scheme: str) -> tuple[str | None, int | None]:
    """Return name and port of a `Host` header; nothing where it is none."""
    try:
        url = urlsplit(f"//{host}")
        return url.hostname, url.port or PORTS.get(scheme)
    except ValueError:
        return None, None


def caller_of(headers: Mapping[str, str]) -> Context:
    """Return the context that the caller's headers continue, in the formats that are configured."""
    current = surrounding()
    propagator = propagate.get_global_textmap()
    # Most requests of the outermost service carry nothing; looking for it with each propagator costs 8 us.
    if headers.keys().isdisjoint(propagator.fields):
        return current
    return propagator.extract(headers, current)


def surrounding() -> Context:
    """Return the current context; an empty one where it is that of a span which is over.

    A server handles what came in meanwhile on the same connection from within the request before (pipelining,
    reading resumed after a large body), and every later request of that connection with it.
    """
    current = get_current()
    span: Any = current.get(SPAN_KEY)
    if span is None:
        return current
    if span.is_recording():
        server = getattr(getattr(span, "_local", None), "server", None)
        return Context() if ANSWERED and id(server) in ANSWERED else current
    context = span.get_span_context()
    # A caller's span does not record here, and neither does one that is not sampled.
    over = context.trace_flags.sampled and not context.is_remote
    return Context() if over else current


def route_of(scope: Mapping[str, Any]) -> str | None:
    """Return the route that the framework has put into the scope, with its placeholders."""
    route: Any = scope.get("route")
    path = getattr(route, "path_format", None) or getattr(route, "path", None)
    if not isinstance(path, str):
        return None
    mounts = hasattr(route, "routes")
    prefix = scope.get("root_path", "").rstrip("/")
    if prefix:
        own: Any = () if mounts else getattr(route, "param_convertors", None) or ()
        given: dict[str, Any] = scope.get("path_params") or {}
        outer = {str(value): name for name, value in given.items() if name not in own}
        prefix = "/".join(f"{{{outer[part]}}}" if part in outer else part for part in prefix.split("/"))
    # Nothing below a mount has matched: its own path is in the prefix by now.
    return f"{prefix}{'/{path}' if mounts else path}" or "/"
