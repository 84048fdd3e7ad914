"""OpenTelemetry's own instrumentation packages, and the hook that switches integrations on when imported."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

import tailscope
from tailscope import integrations
from tailscope.integrations import _imports, contrib

if TYPE_CHECKING:
    from pathlib import Path

Spans = Callable[[], list[Any]]


@pytest.fixture(autouse=True)
def take_back() -> Iterator[None]:
    yield
    integrations.uninstrument()


class Instrumentor:
    """Stands in for one of OpenTelemetry's packages."""

    made: ClassVar[list[str]] = []
    is_on = False

    def __init__(self, *, fails: bool = False, fits: bool = True) -> None:
        self.fails, self.fits = fails, fits

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        return self.is_on

    def instrument(self) -> None:
        if self.fails:
            raise RuntimeError("no such method")
        self.made.append("on")
        Instrumentor.is_on = self.fits

    def uninstrument(self) -> None:
        self.made.append("off")
        Instrumentor.is_on = False


class Point:
    """Stands in for an entry point."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.options = name, options
        self.module = "no_such_package"

    def load(self) -> Any:
        return lambda: Instrumentor(**self.options)


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Give the installed instrumentors."""
    found: list[Any] = []
    monkeypatch.setattr(contrib, "entry_points", lambda group: found if group == contrib.GROUP else [])
    Instrumentor.made.clear()
    Instrumentor.is_on = False
    yield found
    contrib.uninstrument()


def test_an_instrumentor_is_switched_on_once_and_off_again(points: list[Any]) -> None:
    points.append(Point("json"))

    assert (contrib.instrument(), contrib.instrument()) == (["json"], ["json"])
    contrib.uninstrument()

    assert Instrumentor.made == ["on", "off"]
    assert tailscope.stats().errors == {}


def test_one_that_the_service_has_switched_on_is_left_alone(points: list[Any]) -> None:
    points.append(Point("json"))
    Instrumentor.is_on = True

    contrib.instrument()
    contrib.uninstrument()

    assert Instrumentor.made == []


def test_one_that_fails_and_one_that_does_not_fit_are_named(points: list[Any]) -> None:
    points.extend([Point("json", fails=True), Point("socket", fits=False)])

    contrib.instrument()

    assert tailscope.stats().errors == {"contrib:json": 1, "contrib:socket": 1}


def test_those_that_make_a_second_span_or_touch_logging_are_left_out(points: list[Any]) -> None:
    points.extend(Point(name) for name in ("fastapi", "flask", "grpc_server", "logging", "json"))

    assert contrib.available() == ["json"]


@pytest.mark.parametrize(("value", "left"), [("json, sqlite3", []), ("sqlite3", ["json"]), ("*", [])])
def test_what_the_environment_switches_off_stays_off(
    points: list[Any], monkeypatch: pytest.MonkeyPatch, value: str, left: list[str]
) -> None:
    points.extend([Point("json"), Point("sqlite3")])
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", value)

    assert contrib.instrument() == left


def test_a_library_that_is_not_installed_is_not_waited_for(points: list[Any]) -> None:
    points.append(Point("no_such_library"))

    assert contrib.instrument() == []


def test_http_is_reported_in_the_stable_names_unless_the_service_says_otherwise(
    points: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http/dup")
    points.append(Point("json"))

    contrib.instrument()

    assert os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] == "http/dup"


REAL = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
import tailscope
from tailscope import integrations

seen = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        seen.append(self.headers.get("traceparent"))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
tailscope.init()
on = integrations.instrument()
early = [name for name in ("httpx", "requests", "sqlalchemy", "redis") if name in sys.modules]
import httpx, requests
url = f"http://127.0.0.1:{server.server_port}/users"
with tailscope.request("predict"):
    httpx.get(url)
    requests.get(url)
server.shutdown()
print(json.dumps({"on": on, "early": early, "seen": seen, "errors": tailscope.stats().errors}))
"""


def test_real_clients_are_recorded_and_carry_the_trace(receiver: Any, run_python: Any) -> None:
    pytest.importorskip("opentelemetry.instrumentation.requests")
    pytest.importorskip("httpx")
    ended = run_python(REAL, TAILSCOPE_ENDPOINT=receiver.endpoint)
    assert ended.returncode == 0, ended.stderr

    said = json.loads(ended.stdout)
    clients = [span for span in receiver.spans() if span.kind == "client"]
    assert (said["early"], said["errors"]) == ([], {})
    assert {"contrib:httpx", "contrib:requests"} <= set(said["on"])
    assert [span.scope[0].rpartition(".")[2] for span in clients] == ["httpx", "requests"]
    assert [f"00-{span.trace_id}-{span.span_id}-03" for span in clients] == said["seen"]
    assert [span.attributes["http.request.method"] for span in clients] == ["GET", "GET"]
    assert all("http.client.connect_ms" in span.attributes for span in clients)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Write a module that no one has imported."""
    (tmp_path / "probe_module.py").write_text("VALUE = 1\n")
    (tmp_path / "probe_broken.py").write_text("raise ValueError('their own')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "probe_module"
    for name in ("probe_module", "probe_broken"):
        sys.modules.pop(name, None)


def test_a_call_waits_for_the_import_and_finds_the_module_complete(module: str) -> None:
    seen: list[int] = []
    _imports.when_imported(module, lambda: seen.append(sys.modules[module].VALUE))
    assert seen == []

    import probe_module  # type: ignore[import-not-found]

    assert seen == [1]
    assert type(probe_module.__loader__).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(probe_module.__loader__)
    assert _imports.FINDER not in sys.meta_path
    _imports.when_imported(module, lambda: seen.append(2))
    assert seen == [1, 2]


def test_modules_that_share_a_loader_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "library.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("zipped_one", "zipped_two", "zipped_three"):
            packed.writestr(f"{name}.py", "")
    monkeypatch.syspath_prepend(str(archive))
    seen: list[str] = []
    for name in ("zipped_one", "zipped_two"):
        _imports.when_imported(name, partial(seen.append, name))

    for name in ("zipped_three", "zipped_two", "zipped_one"):
        __import__(name)
        sys.modules.pop(name)

    assert seen == ["zipped_two", "zipped_one"]


def test_an_import_that_fails_fails_as_it_would_without_us(module: str) -> None:
    assert module
    seen: list[int] = []
    call = lambda: seen.append(1)  # noqa: E731
    _imports.when_imported("probe_broken", call)

    with pytest.raises(ValueError, match="their own"):
        import probe_broken  # type: ignore[import-not-found]  # noqa: F401

    assert seen == []
    with pytest.raises(ModuleNotFoundError):
        __import__("probe_absent")
    _imports.forget("probe_broken", call)
    assert _imports.FINDER not in sys.meta_path


def test_an_integration_that_fails_is_named_and_the_import_goes_on(module: str) -> None:
    def fail() -> None:
        raise RuntimeError("no such class")

    _imports.when_imported(module, fail)
    import probe_module

    assert probe_module.VALUE == 1
    assert tailscope.stats().errors == {f"internal:integration:{module}": 1}


def test_what_a_call_imports_is_told_of_when_it_is_done(module: str) -> None:
    seen: list[str] = []

    def first() -> None:
        import sched

        assert sched
        seen.append("first")

    sys.modules.pop("sched", None)
    _imports.when_imported("sched", lambda: seen.append("inside"))
    _imports.when_imported(module, first)
    __import__(module)

    assert seen == ["first", "inside"]


def test_an_unknown_integration_is_named() -> None:
    assert integrations.instrument(only=["fastapy"]) == []
    assert tailscope.stats().errors == {"integration": 1}


def test_every_integration_of_the_list_can_be_switched_on_and_off() -> None:
    from importlib import import_module

    for name, modules in integrations.INTEGRATIONS.items():
        found = import_module(f"tailscope.integrations.{name}")
        assert found.PACKAGE in modules, name
        assert callable(found.instrument)
        assert callable(found.uninstrument)
