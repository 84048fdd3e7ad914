"""TLS and client certificates on both ports, with real handshakes."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import tailscope_analyzer as ta
from tailscope_analyzer import SourceError
from tailscope_analyzer.commands import sql as sql_command
from tailscope_collector import Collector, Security, TlsFiles, open_data
from tailscope_collector._guards._tls import Tls
from tailscope_collector.commands import import_files as import_command
from tailscope_collector.errors import AccessError
from tests.collector.certificates import Certificates, write_certificates
from tests.collector.serving import DEADLINE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.collector.serving import ServeProcess

SERVICE = """
import tailscope
tailscope.init(service="ranker")
with tailscope.request("predict"):
    with tailscope.stage("inference"):
        pass
tailscope.flush(timeout_s=20)
print(tailscope.stats())
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return write_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def encrypted(tmp_path: Path, files: Certificates) -> Iterator[Collector]:
    with Collector(tmp_path / "data", security=Security(tls=files.server)) as made:
        yield made


@pytest.fixture
def mutual(tmp_path: Path, files: Certificates) -> Iterator[Collector]:
    with Collector(tmp_path / "data", security=Security(tls=files.mutual)) as made:
        yield made


def handshake(url: str, context: ssl.SSLContext) -> str | None:
    """Return the TLS version that a client gets; raises ssl.SSLError or OSError."""
    address = urlsplit(url)
    assert address.hostname is not None
    with (
        socket.create_connection((address.hostname, address.port or 0), DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname=address.hostname) as peer,
    ):
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        if b"200" not in peer.recv(100):  # of a missing certificate TLS 1.3 tells only here
            raise ConnectionError("closed without an answer")
        return peer.version()


def test_questions_are_asked_over_tls(encrypted: Collector, files: Certificates) -> None:
    assert encrypted.url.startswith("https://")
    with ta.connect(encrypted.url, ca_file=files.ca) as client:
        assert client.sql("select 1").rows == [(1,)]


def test_a_certificate_of_a_stranger_is_refused_by_the_client(encrypted: Collector) -> None:
    with ta.connect(encrypted.url) as client, pytest.raises(SourceError, match="--ca-file"):
        client.sql("select 1")


def test_plain_http_is_not_answered_and_https_without_tls_is_explained(
    encrypted: Collector, tmp_path: Path
) -> None:
    with ta.connect(encrypted.url.replace("https", "http")) as client, pytest.raises(SourceError):
        client.sql("select 1")
    with (
        Collector(tmp_path / "plain") as plain,
        ta.connect(plain.url.replace("http", "https")) as client,
        pytest.raises(SourceError, match="begins with http://"),
    ):
        client.sql("select 1")


def test_old_versions_of_tls_are_not_spoken(encrypted: Collector, files: Certificates) -> None:
    old = ssl.create_default_context(cafile=files.ca)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)):
        handshake(encrypted.url, old)
    new = ssl.create_default_context(cafile=files.ca)
    new.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(encrypted.url, new) == "TLSv1.2"
    assert handshake(encrypted.url, ssl.create_default_context(cafile=files.ca)) == "TLSv1.3"


def test_a_client_without_a_certificate_is_not_let_in(mutual: Collector, files: Certificates) -> None:
    with (
        ta.connect(mutual.url, ca_file=files.ca) as client,
        pytest.raises(SourceError, match="--client-cert"),
    ):
        client.sql("select 1")
    given = ta.connect(
        mutual.url, ca_file=files.ca, client_cert=files.client_cert, client_key=files.client_key
    )
    with given as client:
        assert client.sql("select 1").rows == [(1,)]


def test_a_certificate_of_another_authority_is_not_let_in(
    mutual: Collector, files: Certificates, tmp_path: Path
) -> None:
    stranger = write_certificates(tmp_path / "stranger")
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(stranger.client_cert, stranger.client_key)

    with pytest.raises((ssl.SSLError, OSError)):
        handshake(mutual.url, context)


@pytest.mark.parametrize("shows_certificate", [True, False])
def test_grpc_wants_the_same_certificate(
    mutual: Collector, files: Certificates, *, shows_certificate: bool
) -> None:
    def read(path: str) -> bytes:
        with open(path, "rb") as file:  # noqa: PTH123 - one line
            return file.read()

    own = (read(files.client_key), read(files.client_cert)) if shows_certificate else (None, None)
    with grpc.secure_channel(mutual.grpc, grpc.ssl_channel_credentials(read(files.ca), *own)) as channel:
        method: Any = channel.unary_unary(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export", None, None
        )
        code = method.future(b"", timeout=DEADLINE_S).code()

    assert code is (grpc.StatusCode.OK if shows_certificate else grpc.StatusCode.UNAVAILABLE)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_stock_exporters_send_over_tls(
    encrypted: Collector, files: Certificates, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)  # requests prefers them to what the exporter is told
    exporter: Any
    if protocol == "grpc":
        with open(files.ca, "rb") as roots:  # noqa: PTH123 - one line
            credentials = grpc.ssl_channel_credentials(roots.read())
        exporter = GrpcExporter(endpoint=f"https://{encrypted.grpc}", credentials=credentials)
    else:
        exporter = HttpExporter(endpoint=f"{encrypted.url}/v1/traces", certificate_file=files.ca)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("t").start_span("work").end()
    provider.shutdown()

    with ta.connect(encrypted.url, ca_file=files.ca) as client:
        assert client.sql("select operation from spans").rows == [("work",)]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_our_own_instrumentation_sends_over_mutual_tls_with_a_token(
    serve: Callable[..., ServeProcess], files: Certificates, tmp_path: Path, protocol: str
) -> None:
    for side in ("ingest", "query"):
        (tmp_path / side).write_text(f"{side}-0123456789abcdef\n")
        (tmp_path / side).chmod(0o600)
    flags = ["--ingest-token-file", str(tmp_path / "ingest"), "--query-token-file", str(tmp_path / "query")]
    process = serve(*flags, *files.flags(mutual=True))
    environment = os.environ | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://{process.grpc}" if protocol == "grpc" else process.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20ingest-0123456789abcdef",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": files.ca,
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": files.client_cert,
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": files.client_key,
    }

    done = subprocess.run(
        [sys.executable, "-c", SERVICE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    client = ta.connect(
        process.url,
        token_file=str(tmp_path / "query"),
        ca_file=files.ca,
        client_cert=files.client_cert,
        client_key=files.client_key,
    )
    with client:
        assert client.sql("select service, operation from requests").rows == [("ranker", "predict")]


def test_the_owner_of_the_directory_needs_no_file(encrypted: Collector, tmp_path: Path) -> None:
    """The certificate that the collector left is trusted, whatever names are in it."""
    assert encrypted.url.startswith("https")
    with open_data(tmp_path / "data") as source:  # type: ignore[attr-defined]
        assert source.sql("select 1").rows == [(1,)]


def test_the_owner_shows_the_certificate_that_the_command_was_given(
    mutual: Collector, files: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mutual.url.startswith("https")
    (tmp_path / "trace.json").write_text(
        '[{"traceId": "000000000000000000000000000000ab", "id": "00000000000000cd", "name": "x"}]'
    )
    where = ["--data", str(tmp_path / "data")]
    own = ["--client-cert", files.client_cert, "--client-key", files.client_key]

    assert sql_command.main(["select 1", *where]) == 1
    assert "--client-cert" in capsys.readouterr().err
    assert sql_command.main(["select 1 as shown", *where, *own]) == 0
    assert "shown" in capsys.readouterr().out
    assert import_command.main([str(tmp_path / "trace.json"), *where]) == 1
    assert import_command.main([str(tmp_path / "trace.json"), *where, *own]) == 0
    assert sql_command.main(["select operation from spans", *where, *own]) == 0
    assert "x" in capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tls-cert", "{cert}"], "go together"),
        (["--tls-key", "{key}"], "go together"),
        (["--tls-client-ca", "{ca}"], "needs --tls-cert"),
        (["--tls-cert", "{none}", "--tls-key", "{key}"], "none.pem for TLS: No such file"),
        (["--tls-cert", "{cert}", "--tls-key", "{none}"], "none.pem for TLS: No such file"),
        (["--tls-cert", "{key}", "--tls-key", "{key}"], "no '-----BEGIN CERTIFICATE-----' in it"),
        (["--tls-cert", "{cert}", "--tls-key", "{cert}"], "is not PEM"),
        (["--tls-cert", "{cert}", "--tls-key", "{client_key}"], "is not the key of --tls-cert"),
        (["--tls-cert", "{old_cert}", "--tls-key", "{old_key}"], "certificate has expired"),
        (["--tls-cert", "{cert}", "--tls-key", "{locked}"], "encrypted"),
        (
            ["--tls-cert", "{cert}", "--tls-key", "{key}", "--tls-client-ca", "{key}"],
            "holds no PEM certificate",
        ),
    ],
)
def test_a_wrong_file_is_named_at_the_start(
    files: Certificates,
    tmp_path: Path,
    flags: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tailscope_collector.commands import serve as command

    monkeypatch.setattr("signal.signal", lambda *_: None)
    old = write_certificates(tmp_path / "old", expires=datetime.now(UTC) - timedelta(days=1))
    locked = tmp_path / "locked"
    subprocess.run(
        ["openssl", "pkey", "-in", files.key, "-aes256", "-passout", "pass:secret", "-out", locked],
        check=True,
    )
    named = {name: getattr(files, name) for name in ("ca", "cert", "key", "client_key")}
    named |= {
        "none": str(tmp_path / "none.pem"),
        "old_cert": old.cert,
        "old_key": old.key,
        "locked": str(locked),
    }
    argv = ["--data", str(tmp_path / "data"), "--grpc-port", "0", "--http-port", "0"]

    assert command.main([*argv, *(flag.format(**named) for flag in flags)]) == 1

    assert said in capsys.readouterr().err


def test_files_that_are_replaced_are_used_without_a_restart(tmp_path: Path) -> None:
    first = write_certificates(tmp_path / "files")
    tls = Tls(TlsFiles(first.cert, first.key))
    with Collector(tmp_path / "data", security=Security(tls=first.server)) as running:
        assert handshake(running.url, ssl.create_default_context(cafile=first.ca))
        write_certificates(tmp_path / "files")
        renewed = ssl.create_default_context(cafile=first.ca)  # the new authority, under the old path
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            try:
                handshake(running.url, renewed)
            except (ssl.SSLError, OSError):
                time.sleep(0.5)
            else:
                break
        with ta.connect(running.url, ca_file=first.ca) as client:
            assert client.sql("select 1").rows == [(1,)]
        with open(first.ca, "rb") as roots:  # noqa: PTH123 - one line
            credentials = grpc.ssl_channel_credentials(roots.read())
        with grpc.secure_channel(running.grpc, credentials) as channel:
            grpc.channel_ready_future(channel).result(timeout=DEADLINE_S)
    assert tls.expires_unix_s > time.time()


def test_a_chain_of_authorities_is_served_whole(tmp_path: Path) -> None:
    made = write_certificates(tmp_path / "files")
    pem = (tmp_path / "files" / "cert").read_text()

    assert Tls(made.server).certificate == pem
    with pytest.raises(AccessError, match="Cannot read"):
        Tls(TlsFiles(str(tmp_path / "x"), made.key))
