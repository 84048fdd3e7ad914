"""A fresh Tailscope for each test, sending to a real receiver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.util._once import Once

import tailscope
from tailscope import _guard, _runtime
from tailscope._aside import ACTIVE
from tailscope._gc import PAUSES
from tests.instrumentation.receiver import Receiver, grpc_receiver

if TYPE_CHECKING:
    from pathlib import Path

KEPT = {"TAILSCOPE_SHARED", "TAILSCOPE_CORE"}

Run = Callable[..., subprocess.CompletedProcess[str]]


def forget() -> None:
    """Bring the process to the state before `init`; OpenTelemetry takes a provider only once."""
    if _runtime.RUNTIME.recorder is not None:
        _runtime.shutdown(timeout_s=5)
    runtime = _runtime.RUNTIME
    runtime.mode, runtime.settings, runtime.recorder, runtime.provider = "off", None, None, None
    ACTIVE.scope = ACTIVE.foreign = None
    PAUSES.remove()
    _guard.reset()
    trace._TRACER_PROVIDER = None
    trace._TRACER_PROVIDER_SET_ONCE = Once()


@pytest.fixture(autouse=True)
def clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test without variables that configure telemetry and without what another test initialised."""
    for name in list(os.environ):
        if name.startswith(("OTEL_", "TAILSCOPE_")) and name not in KEPT:
            monkeypatch.delenv(name)
    # What the host did is different in each run; the tests of signals switch them on.
    monkeypatch.setenv("TAILSCOPE_HOST_SIGNALS", "false")
    forget()
    yield
    forget()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Run a real OTLP/gRPC receiver."""
    with grpc_receiver() as running:
        yield running


@pytest.fixture
def recorded(receiver: Receiver) -> Callable[[], list[Any]]:
    """Initialise Tailscope; the function returned flushes and gives every span that arrived."""
    tailscope.init(service="ranker", endpoint=receiver.endpoint)

    def spans() -> list[Any]:
        assert tailscope.flush(timeout_s=10), tailscope.stats()
        return receiver.spans()

    return spans


@pytest.fixture
def run_python() -> Run:
    """Run a program in a process of its own and return what it printed."""

    def run(
        program: str, *arguments: str, timeout_s: float = 60, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "TAILSCOPE_"))}
        clean |= {k: v for k, v in os.environ.items() if k in {"TAILSCOPE_CORE", "TAILSCOPE_HOST_SIGNALS"}}
        return subprocess.run(
            # Python 3.12 warns of every fork in a process with threads, which is what the tests of forks do.
            [sys.executable, "-W", "error", "-W", "ignore:This process", "-c", program, *arguments],
            env={**clean, **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("openssl is not installed, with which the test makes its certificate")
    return folder
