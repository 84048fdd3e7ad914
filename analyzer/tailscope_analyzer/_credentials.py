"""How a client shows who it is, and how it knows its collector: a token, certificates.

Owns where they come from: an argument, then the environment, then the file that a collector leaves in its
data directory for the user who owns it. Never shows a token.
"""

from __future__ import annotations

import json
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

ENV_TOKEN: Final = "TAILSCOPE_TOKEN"  # noqa: S105 - the names of variables, no tokens
ENV_TOKEN_FILE: Final = "TAILSCOPE_TOKEN_FILE"  # noqa: S105
ENV_CA_FILE: Final = "TAILSCOPE_CA_FILE"
ENV_CLIENT_CERT: Final = "TAILSCOPE_CLIENT_CERT"
ENV_CLIENT_KEY: Final = "TAILSCOPE_CLIENT_KEY"
ENV_ACCESS_FILE: Final = "TAILSCOPE_ACCESS_FILE"
"""Path of a `collector.access`; what a command that looks into a data directory gives its children."""

ACCESS_FILE: Final = "collector.access"

Side = Literal["ingest", "query"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client sends and checks; paths are of PEM files."""

    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    """Who signs the collector's certificate; the system's own authorities where it is None."""
    client_cert: str | None = None
    client_key: str | None = None
    pinned: str | None = field(default=None, repr=False)
    """The one certificate (PEM) that the collector has, whatever names are in it."""

    def headers(self) -> dict[str, str]:
        """Return the header that carries the token, if there is one."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def tls(self) -> ssl.SSLContext:
        """Return what an `https` URL is asked with; raises InputError for a file that cannot be used."""
        try:
            if self.pinned:
                context = ssl.create_default_context(cadata=self.pinned)
                context.check_hostname = False
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            else:
                context = ssl.create_default_context(cafile=self.ca_file)
            if self.client_cert:
                context.load_cert_chain(self.client_cert, self.client_key)
        except OSError as error:  # which ssl.SSLError is, too
            names = ", ".join(name for name in (self.ca_file, self.client_cert, self.client_key) if name)
            keyless = self.client_cert and not self.client_key
            raise InputError(
                f"The certificates cannot be used ({names}): {error.strerror or error}"
                + (". The key of --client-cert is named with --client-key." if keyless else "")
            ) from error
        return context


def credentials(
    *,
    token: str | None = None,
    token_file: str | None = None,
    ca_file: str | None = None,
    client_cert: str | None = None,
    client_key: str | None = None,
    side: Side = "query",
    environment: Mapping[str, str] | None = None,
) -> Credentials:
    """Return what the arguments say, and the environment where they say nothing.

    Raises InputError where a file cannot be read or a token cannot be sent.
    """
    env = os.environ if environment is None else environment
    access = env.get(ENV_ACCESS_FILE)
    left = owner_credentials(Path(access).parent, side=side) if access else Credentials()
    # What is given here is meant; a variable may be for another collector, and its file is not read in vain.
    given = token or (_token_of(token_file) if token_file else None) or left.token or env.get(ENV_TOKEN)
    if not given and env.get(ENV_TOKEN_FILE):
        given = _token_of(env[ENV_TOKEN_FILE])
    return Credentials(
        token=_sendable(given),
        ca_file=ca_file or env.get(ENV_CA_FILE) or None,
        client_cert=client_cert or env.get(ENV_CLIENT_CERT) or None,
        client_key=client_key or env.get(ENV_CLIENT_KEY) or None,
        pinned=None if ca_file else left.pinned,
    )


def owner_credentials(directory: str | os.PathLike[str], *, side: Side = "query") -> Credentials:
    """Return what a collector left in its data directory for its owner; nothing where it left nothing."""
    try:
        left = json.loads((Path(directory) / ACCESS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Credentials()
    said = cast("dict[str, Any]", left) if isinstance(left, dict) else {}
    token, pinned = said.get(side), said.get("certificate")
    return Credentials(
        token=token if isinstance(token, str) else None, pinned=pinned if isinstance(pinned, str) else None
    )


def for_owner(
    directory: str | os.PathLike[str], *, side: Side = "query", given: Credentials | None = None
) -> Credentials:
    """Return what to ask the collector of a directory with: what it left there beside what is given.

    Where nothing is given, the environment says it.
    """
    given, left = given or credentials(side=side), owner_credentials(directory, side=side)
    return Credentials(
        # The collector's own come first: a variable may be for another one.
        token=left.token or given.token,
        ca_file=given.ca_file,
        client_cert=given.client_cert,
        client_key=given.client_key,
        pinned=left.pinned,
    )


def _token_of(path: str) -> str:
    """Return the first token of a file; a file of a collector holds several while they are rotated."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"Cannot read the token file {path}: {reason}.") from error
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            return line.strip()
    raise InputError(f"The token file {path} holds no token.")


def _sendable(token: str | None) -> str | None:
    if not token:
        return None
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InputError("The token has characters that no header can carry; is its file the right one?")
    return token
