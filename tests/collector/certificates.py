"""Certificates for tests: an authority, a server's and a client's, as files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trustme

from tailscope_collector import TlsFiles

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: a server at 127.0.0.1 and localhost, a client, and who signed both."""

    ca: str
    cert: str
    key: str
    client_cert: str
    client_key: str

    @property
    def server(self) -> TlsFiles:
        return TlsFiles(self.cert, self.key)

    @property
    def mutual(self) -> TlsFiles:
        return TlsFiles(self.cert, self.key, self.ca)

    def flags(self, *, mutual: bool = False) -> list[str]:
        """Return what `tailscope serve` is given."""
        given = ["--tls-cert", self.cert, "--tls-key", self.key]
        return [*given, "--tls-client-ca", self.ca] if mutual else given


def write_certificates(
    folder: Path, *, expires: datetime | None = None, name: str = "localhost"
) -> Certificates:
    """Issue all of them anew."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", "localhost", name, not_after=expires)
    client = authority.issue_cert("client@example.org")
    made = Certificates(
        *(str(folder / name) for name in ("ca.pem", "cert", "key", "client.pem", "client.key"))
    )
    authority.cert_pem.write_to_path(made.ca)
    for issued, cert, key in ((server, made.cert, made.key), (client, made.client_cert, made.client_key)):
        for number, part in enumerate(issued.cert_chain_pems):
            part.write_to_path(cert, append=number > 0)
        issued.private_key_pem.write_to_path(key)
    return made
