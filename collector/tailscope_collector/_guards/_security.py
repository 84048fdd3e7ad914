"""What protects a collector, put together: tokens, TLS, the names it answers to, and whether it may be open.

Owns the rule that an address which others can reach is never open by accident. Reads no environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope_collector._guards._access import FLAGS, Access, TokenFile
from tailscope_collector._guards._hosts import Hosts, is_loopback
from tailscope_collector._guards._tls import Tls, TlsFiles
from tailscope_collector.errors import AccessError

if TYPE_CHECKING:
    from tailscope_collector._guards._access import Side


@dataclass(frozen=True, slots=True)
class Security:
    """Which files and names a collector starts with; nothing of it is a secret."""

    ingest_token_file: str | None = None
    query_token_file: str | None = None
    tls: TlsFiles | None = None
    allowed_hosts: tuple[str, ...] = ()
    allow_unauthenticated: bool = False


@dataclass(frozen=True, slots=True)
class Guards:
    """The parts at work."""

    access: Access
    hosts: Hosts
    tls: Tls | None


def guards_for(host: str, security: Security) -> Guards:
    """Read the files and return the guards of a collector that binds to `host`.

    Raises AccessError: a file cannot be used, or others could reach the collector and nobody asks who it is.
    """
    files: dict[Side, str | None] = {
        "ingest": security.ingest_token_file,
        "query": security.query_token_file,
    }
    asks_for_certificates = security.tls is not None and security.tls.client_ca is not None
    if not is_loopback(host) and not asks_for_certificates and not security.allow_unauthenticated:
        missing = [FLAGS[side] for side, file in files.items() if file is None]
        if missing:
            raise AccessError(
                f"Not listening on {host} without {' and '.join(missing)}: whoever reaches it could read or "
                "write spans. Give the token files or --tls-client-ca, stay on --host 127.0.0.1, or say "
                "--allow-unauthenticated where the network keeps others out."
            )
    ingest, query = (
        None if file is None else TokenFile(file, flag=FLAGS[side]) for side, file in files.items()
    )
    return Guards(
        Access(ingest=ingest, query=query),
        Hosts(host, security.allowed_hosts),
        None if security.tls is None else Tls(security.tls),
    )
