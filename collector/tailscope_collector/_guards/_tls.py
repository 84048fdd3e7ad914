"""TLS on both ports: the files of certificate and key, checked at the start, read again when they change.

Owns the server's contexts and the words for what is wrong with a file. Versions below TLS 1.2 are refused.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import grpc

from tailscope_collector.errors import AccessError

if TYPE_CHECKING:
    from typing import NoReturn

LOOK_S: Final = 5.0
"""How often the files are looked at, at most; only a handshake looks."""

WARN_DAYS: Final = 14
DAY_S: Final = 86_400
EXPIRED, NOT_YET = 10, 9
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED and X509_V_ERR_CERT_NOT_YET_VALID."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of a server's certificate (with its chain), its key, and who signs the clients allowed in."""

    certificate: str
    key: str
    client_ca: str | None = None

    def paths(self) -> list[Path]:
        """Return the files that there are."""
        return [Path(name) for name in (self.certificate, self.key, self.client_ca) if name]


class Tls:
    """The server's side of TLS; raises AccessError where a handshake could not succeed.

    `expires_unix_s` is when the certificate that was read last ends.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.certificate, self.expires_unix_s = _checked(files)
        self.context = _context(files)
        self._stamp = self._grpc_stamp = _stamp(files)
        self._looked_s = time.monotonic()
        # Called by every handshake, whether or not the client names a server.
        self.context.sni_callback = self._before_handshake

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return what `add_secure_port` takes; it asks for new files by itself."""
        return grpc.dynamic_ssl_server_credentials(
            _grpc_configuration(self._files),
            cast("Any", self._grpc_fetch),  # None is allowed, which its types do not know
            require_client_authentication=self._files.client_ca is not None,
        )

    def _grpc_fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the files where they have changed; None keeps what is in use."""
        try:
            stamp = _stamp(self._files)
            if stamp == self._grpc_stamp:
                return None
            _checked(self._files)
            found = _grpc_configuration(self._files)
        except (AccessError, OSError):
            return None
        self._grpc_stamp = stamp
        return found

    def _before_handshake(self, _socket: object, _name: str | None, _context: ssl.SSLContext) -> None:
        self._look()

    def _look(self) -> None:
        """Load the files again where they have changed; what is broken or half-written changes nothing."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        try:
            stamp = _stamp(self._files)
            if stamp == self._stamp:
                return
            self.certificate, self.expires_unix_s = _checked(self._files)
            self.context.load_cert_chain(self._files.certificate, self._files.key)
            self._stamp = stamp
        except (AccessError, OSError):
            return


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key, _no_password)
    if files.client_ca:
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _checked(files: TlsFiles) -> tuple[str, float]:
    """Return the certificate as PEM and when it ends, after a handshake with ourselves in memory."""
    for path in files.paths():
        _readable(path)
    try:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(files.certificate, files.key, _no_password)
    except ssl.SSLError as error:
        raise AccessError(_wrong_pair(files, error)) from error
    if files.client_ca:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(files.client_ca)
        except ssl.SSLError as error:
            raise AccessError(f"--tls-client-ca {files.client_ca} holds no PEM certificate.") from error
    pem = Path(files.certificate).read_text("ascii", "replace")
    return pem, _expiry(files.certificate, server, pem)


def _expiry(name: str, server: ssl.SSLContext, pem: str) -> float:
    """Let a client that trusts exactly this certificate connect, in memory; it checks times and purpose."""
    client = ssl.create_default_context(cadata=pem)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (asking, answering, asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLCertVerificationError as error:
        raise AccessError(f"--tls-cert {name} cannot be used: {error.verify_message}.") from error
    except ssl.SSLError as error:
        raise AccessError(f"--tls-cert {name} cannot be used: {error.reason}.") from error
    ends = (asking.getpeercert() or {}).get("notAfter")
    return float(ssl.cert_time_to_seconds(ends)) if isinstance(ends, str) else 0.0


def _readable(path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise AccessError(f"Cannot read {path} for TLS: {error.strerror}.") from error


def _wrong_pair(files: TlsFiles, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"--tls-key {files.key} is not the key of --tls-cert {files.certificate}."
    for flag, name, kind in (
        ("--tls-cert", files.certificate, "CERTIFICATE"),
        ("--tls-key", files.key, "KEY"),
    ):
        if f"{kind}-----" not in Path(name).read_text("ascii", "replace"):
            return f"{flag} {name} is not PEM: there is no '-----BEGIN {kind}-----' in it."
    return (
        f"--tls-cert {files.certificate} and --tls-key {files.key} cannot be used: {error.reason or error}."
    )


def _no_password() -> NoReturn:
    # Without this OpenSSL asks on the terminal and the collector hangs where there is one.
    raise AccessError(
        "The key of --tls-key is encrypted; decrypt it with: openssl pkey -in KEY -out PLAIN_KEY"
    )


def _grpc_configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    pair = (Path(files.key).read_bytes(), Path(files.certificate).read_bytes())
    roots = Path(files.client_ca).read_bytes() if files.client_ca else None
    return grpc.ssl_server_certificate_configuration([pair], roots)


def _stamp(files: TlsFiles) -> list[tuple[int, int, int]]:
    return [(seen.st_mtime_ns, seen.st_ino, seen.st_size) for seen in (path.stat() for path in files.paths())]
