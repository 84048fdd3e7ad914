"""The flags of `tailscope serve` that say who may reach it: tokens, TLS, names.

Owns their names and their variables in the environment. A token itself is never a flag: `ps` shows those.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tailscope_collector._guards._security import Security
from tailscope_collector._guards._tls import TlsFiles
from tailscope_collector.errors import AccessError

if TYPE_CHECKING:
    import argparse

FILES: Final = {
    "--ingest-token-file": ("TAILSCOPE_INGEST_TOKEN_FILE", "tokens of senders, one a line"),
    "--query-token-file": ("TAILSCOPE_QUERY_TOKEN_FILE", "tokens of those who ask, one a line"),
    "--tls-cert": ("TAILSCOPE_TLS_CERT", "PEM of the certificate of both ports, with its chain"),
    "--tls-key": ("TAILSCOPE_TLS_KEY", "PEM of its key"),
    "--tls-client-ca": ("TAILSCOPE_TLS_CLIENT_CA", "PEM of who signs clients; others are not let in"),
}


def add_security_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags, with the environment for their defaults."""
    group = parser.add_argument_group("who may reach it")
    for flag, (variable, sentence) in FILES.items():
        group.add_argument(
            flag, metavar="FILE", default=os.environ.get(variable) or None, help=f"{sentence} ({variable})"
        )
    group.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[],
        help="name under which it may be asked without a token, beside addresses and localhost; repeat it",
    )
    group.add_argument(
        "--allow-unauthenticated",
        action="store_true",
        help="listen on --host without tokens, where the network keeps others out",
    )


def security_of(args: argparse.Namespace) -> Security:
    """Return what the flags say; raises AccessError for half of a pair."""
    if args.tls_client_ca and not args.tls_cert:
        raise AccessError("--tls-client-ca needs --tls-cert and --tls-key: there is no TLS without them.")
    if bool(args.tls_cert) != bool(args.tls_key):
        raise AccessError("--tls-cert and --tls-key go together; one of them is missing.")
    return Security(
        ingest_token_file=args.ingest_token_file,
        query_token_file=args.query_token_file,
        tls=TlsFiles(args.tls_cert, args.tls_key, args.tls_client_ca) if args.tls_cert else None,
        allowed_hosts=tuple(args.allowed_host),
        allow_unauthenticated=args.allow_unauthenticated,
    )
