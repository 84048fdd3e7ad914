"""`tailscope run`, and the servers with several processes: every request arrives whole."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailscope._run.command import SITE, guess_service, main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.instrumentation.receiver import Receiver

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")

BIN = Path(sys.executable).parent
RUN = [sys.executable, "-m", "tailscope._run"]
REQUESTS = 200
TLS = ssl.create_default_context()  # unused, and 20 ms for each client that makes its own
CORE = os.environ.get("TAILSCOPE_CORE")  # a test's own environment has none

SERVICE = """
import asyncio
import os

import tailscope
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from tailscope import integrations

if os.environ.get("SET_UP") == "yes":
    tailscope.init(service="classifier")
    integrations.instrument()
app = FastAPI()


@app.get("/predict/{item}")
async def predict(item: int):
    with tailscope.stage("preprocess"):
        pass
    with tailscope.dependency("GET user", peer="users"):
        await asyncio.sleep(0)
    with tailscope.stage("inference"):
        return {"item": item, "pid": os.getpid()}


@app.get("/stream/{item}")
async def stream(item: int):
    @tailscope.stage("inference")
    async def chunks():
        for number in range(3):
            with tailscope.stage("inference.decode"):
                yield f"{number}"

    return StreamingResponse(chunks())
"""

PLAIN = """
from fastapi import FastAPI

app = FastAPI()


@app.get("/predict/{item}")
async def predict(item: int):
    return {"item": item}
"""

CHILDREN = {
    "predict": ["GET user", "inference", "preprocess"],
    "stream": ["inference", "inference.decode", "inference.decode", "inference.decode"],
}


def clean(given: dict[str, str]) -> dict[str, str]:
    """Return an environment without variables that configure telemetry, but for the choice of the core."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "TAILSCOPE_"))}
    core = {"TAILSCOPE_CORE": CORE} if CORE else {}
    return {**kept, **core, **given}


def free_port() -> int:
    """Return a port that nobody listens to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def started(command: list[str], cwd: Path, port: int, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a server until the block ends; killed, if it is still there then."""
    with (cwd / "server.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=cwd, env=clean(environment), stdout=log, stderr=subprocess.STDOUT, text=True
        )
    try:
        deadline = time.monotonic() + 40
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                said = (cwd / "server.log").read_text()
                assert process.poll() is None, f"the server ended: {said}"
                assert time.monotonic() < deadline, f"the server did not listen within 40 s: {said}"
                time.sleep(0.05)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)


def send_requests(url: str) -> None:
    """Send the requests, each on a connection of its own, so that every worker gets some."""

    def ask(number: int) -> None:
        kind = "stream" if number % 4 == 0 else "predict"
        assert httpx.get(f"{url}/{kind}/{number}", timeout=30, verify=TLS).status_code == 200

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(ask, range(REQUESTS)))


def assert_all_arrived(receiver: Receiver, processes: int) -> None:
    """Check that each request is there with all of its stages, from as many processes as there are."""
    spans = receiver.spans()
    roots = [span for span in spans if span.kind == "server"]
    assert len(roots) == REQUESTS
    children: dict[str, list[str]] = {root.trace_id: [] for root in roots}
    for span in spans:
        if span.scope[0] == "tailscope":
            children[span.trace_id].append(span.name)
    for root in roots:
        assert root.parent_id == ""
        assert sorted(children[root.trace_id]) == CHILDREN[root.name.split("/")[1]], root
    assert len({root.resource["service.instance.id"] for root in roots}) == processes
    assert len({root.resource["process.pid"] for root in roots}) == processes
    assert {root.resource["service.name"] for root in roots} == {"classifier"}


def uvicorn(port: int, *options: str) -> list[str]:
    """Return the command of uvicorn."""
    return [str(BIN / "uvicorn"), "classifier:app", "--port", str(port), "--log-level", "warning", *options]


def gunicorn(port: int, *options: str) -> list[str]:
    """Return the command of gunicorn with uvicorn's worker."""
    worker = ["-k", "uvicorn_worker.UvicornWorker", "--log-level", "warning"]
    return [str(BIN / "gunicorn"), "classifier:app", "-b", f"127.0.0.1:{port}", *worker, *options]


DEPLOYMENTS: dict[str, tuple[Callable[..., list[str]], list[str], list[str], int]] = {
    "uvicorn with two workers": (uvicorn, ["--workers", "2"], [], 2),
    "gunicorn preloaded": (gunicorn, ["--preload", "-w", "2"], [], 2),
    "tailscope run uvicorn": (uvicorn, [], [*RUN, "--quiet", "--"], 1),
    "tailscope run uvicorn with two workers": (uvicorn, ["--workers", "2"], [*RUN, "--quiet", "--"], 2),
    "tailscope run gunicorn preloaded": (gunicorn, ["--preload", "-w", "2"], [*RUN, "--quiet", "--"], 2),
}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_every_request_arrives_whole_also_when_the_server_is_stopped_at_once(
    deployment: str, receiver: Receiver, tmp_path: Path
) -> None:
    make, options, run, processes = DEPLOYMENTS[deployment]
    if make is gunicorn:
        pytest.importorskip("gunicorn")
        pytest.importorskip("uvicorn_worker")
    (tmp_path / "classifier.py").write_text(SERVICE)
    port = free_port()
    command = [*run, *make(port, *options)]
    environment = {"TAILSCOPE_ENDPOINT": receiver.endpoint, "PYTHONPATH": str(tmp_path)}
    if not run:
        environment["SET_UP"] = "yes"

    with started(command, tmp_path, port, **environment) as server:
        send_requests(f"http://127.0.0.1:{port}")
        server.send_signal(signal.SIGTERM)
        server.wait(20)

    assert_all_arrived(receiver, processes)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_collector_that_does_not_answer_holds_a_server_up_for_two_seconds_in_all(
    signal_number: signal.Signals, tmp_path: Path
) -> None:
    """The end of the app, the end of the server and the end of Python each send what there is."""
    (tmp_path / "classifier.py").write_text(SERVICE)
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {"TAILSCOPE_ENDPOINT": endpoint, "PYTHONPATH": str(tmp_path)}
        with started([*RUN, "--quiet", "--", *uvicorn(port)], tmp_path, port, **environment) as server:
            assert httpx.get(f"http://127.0.0.1:{port}/predict/1", timeout=30).status_code == 200
            stopped_s = time.monotonic()
            server.send_signal(signal_number)
            server.wait(20)
            assert time.monotonic() - stopped_s < 3.5


def test_a_service_that_knows_nothing_of_us_is_recorded_and_told_of_in_one_line(
    receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    port = free_port()
    command = [*RUN, "--endpoint", receiver.endpoint, "--", str(BIN / "uvicorn"), "plain:app"]
    command += ["--port", str(port), "--log-level", "warning"]

    with started(command, tmp_path, port) as server:
        assert httpx.get(f"http://127.0.0.1:{port}/predict/7").json() == {"item": 7}
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == -signal.SIGTERM

    (root,) = [span for span in receiver.spans() if span.kind == "server"]
    assert (root.name, root.resource["service.name"]) == ("GET /predict/{item}", "plain")
    (line,) = (tmp_path / "server.log").read_text().splitlines()
    assert line.startswith(f"tailscope run: plain -> {receiver.endpoint}; on: ")
    assert "fastapi" in line


FLASK = """
from flask import Flask

app = Flask(__name__)


@app.get("/predict/<int:item>")
def predict(item):
    return {"item": item}
"""

DJANGO = """
import os, sys
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path

settings.configure(SECRET_KEY="-", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], WSGI_APPLICATION=None)
urlpatterns = [path("predict/<int:item>", lambda request, item: JsonResponse({"item": item}))]
if __name__ == "__main__":
    execute_from_command_line(sys.argv)
"""

WSGI_SERVERS = {
    "flask run": ("flask", FLASK, "flask --app classifier run --port {port}"),
    "gunicorn": ("flask", FLASK, "gunicorn classifier:app --preload -w 2 --threads 2 -b 127.0.0.1:{port}"),
    "manage.py": ("django", DJANGO, "python classifier.py runserver 127.0.0.1:{port} --skip-checks"),
}


@pytest.mark.parametrize("server", WSGI_SERVERS)
def test_wsgi_services_are_recorded_without_a_change(server: str, receiver: Receiver, tmp_path: Path) -> None:
    framework, source, line = WSGI_SERVERS[server]
    pytest.importorskip(framework)
    (tmp_path / "classifier.py").write_text(source)
    port = free_port()
    program, *words = line.format(port=port).split()
    if not (BIN / program).exists():
        pytest.skip(f"{program} is not installed")
    command = [*RUN, "--quiet", "--", str(BIN / program), *words]

    with started(command, tmp_path, port, TAILSCOPE_ENDPOINT=receiver.endpoint) as process:
        for item in range(20):
            assert httpx.get(f"http://127.0.0.1:{port}/predict/{item}").json() == {"item": item}
        # Servers for developers die of a signal as any program does: what is recorded is let out before.
        receiver.wait_for(lambda spans: len(spans) >= 20, "20 requests")
        process.send_signal(signal.SIGTERM)
        process.wait(20)

    spans = receiver.spans()
    assert {span.name for span in spans} == {"GET /predict/<int:item>"}
    assert len(spans) == 20
    assert {span.resource["service.name"] for span in spans} == {"classifier"}


def test_a_worker_that_gevent_patches_serves_on_and_says_that_nothing_is_recorded(
    receiver: Receiver, tmp_path: Path
) -> None:
    for needed in ("flask", "gunicorn", "gevent"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    (tmp_path / "classifier.py").write_text(FLASK)
    port = free_port()
    line = f"gunicorn classifier:app -k gevent -b 127.0.0.1:{port} --log-level warning"
    command = [*RUN, "--quiet", "--", str(BIN / "gunicorn"), *line.split()[1:]]

    with started(command, tmp_path, port, TAILSCOPE_ENDPOINT=receiver.endpoint) as server:
        for item in range(20):
            answer = httpx.get(f"http://127.0.0.1:{port}/predict/{item}", timeout=10)
            assert answer.json() == {"item": item}
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0

    assert receiver.spans() == []
    assert (tmp_path / "server.log").read_text().count("gevent has patched this process") == 1


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command and return what came of it."""
    return subprocess.run(
        [*RUN, *words],
        env=clean(environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_exit_code_output_and_arguments_are_the_commands_own() -> None:
    program = "import sys; print(sys.argv[1:]); sys.exit(7)"

    ended = run("--quiet", "--", sys.executable, "-c", program, "--service", "--", "x y")

    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "['--service', '--', 'x y']\n", "")


def test_a_signal_ends_the_command_itself() -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)"

    assert run("--quiet", "--", sys.executable, "-c", program).returncode == -signal.SIGUSR1


def test_no_collector_and_no_framework_do_not_hold_the_command_up() -> None:
    started_s = time.monotonic()

    ended = run("--endpoint", "http://127.0.0.1:9", "--", sys.executable, "-c", "print('done')")

    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert time.monotonic() - started_s < 10


def test_without_a_command_it_explains_itself() -> None:
    ended = run()

    assert (ended.returncode, ended.stdout) == (2, "")
    assert "tailscope run -- uvicorn app:app" in ended.stderr


def test_a_command_of_our_own_environment_is_found_though_nobody_activated_it() -> None:
    ended = run("--quiet", "--", "uvicorn", "--version", PATH="/nowhere")

    assert ended.returncode == 0, ended.stderr
    assert "uvicorn" in ended.stdout


def test_a_command_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--", "no-such-server", "app:app"]) == 2
    assert "no such command: no-such-server" in capsys.readouterr().err


PROBE = """
import json, sys, tailscope
from tailscope._runtime import RUNTIME
mode, settings = RUNTIME.mode, RUNTIME.settings
names = [n for n in ("fastapi", "flask", "django", "sqlalchemy", "requests", "httpx") if n in sys.modules]
print(json.dumps([mode, settings and settings.service, settings and settings.target.endpoint, names]))
"""


def test_options_reach_the_command_and_nothing_heavy_is_imported_for_it() -> None:
    words = ("--quiet", "--service", "ranker", "--endpoint", "http://127.0.0.1:4318")

    ended = run(*words, "--protocol", "http/protobuf", "--", sys.executable, "-c", PROBE)

    assert ended.stdout == '["recording", "ranker", "http://127.0.0.1:4318/v1/traces", []]\n'


def test_a_program_started_by_the_command_is_recorded_too() -> None:
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {PROBE!r}], check=True)"

    assert '"recording"' in run("--quiet", "--", sys.executable, "-c", program).stdout


def test_the_services_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own_one = 'ran'")
    program = "import sys, sitecustomize; print(sys.own_one, sitecustomize.__file__)"

    ended = run("--quiet", "--", sys.executable, "-c", program, PYTHONPATH=str(tmp_path))

    assert ended.stdout == f"ran {tmp_path / 'sitecustomize.py'}\n"


def test_a_sitecustomize_that_fails_does_not_take_us_along(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('their own')")

    ended = run("--quiet", "--", sys.executable, "-c", PROBE, PYTHONPATH=str(tmp_path))

    assert '"recording"' in ended.stdout
    assert "their own" in ended.stderr


def test_an_interpreter_without_tailscope_runs_the_command_and_says_so() -> None:
    # -S leaves the folder of installed packages out; sitecustomize is then imported by hand.
    program = "import sitecustomize; print('served')"

    ended = run("--quiet", "--", sys.executable, "-S", "-c", program)

    assert (ended.returncode, ended.stdout) == (0, "served\n")
    assert "nothing is recorded" in ended.stderr


@pytest.mark.parametrize(
    ("command", "service"),
    [
        ("uvicorn --port 8000 shop.ranker:app", "ranker"),
        ("gunicorn -b 127.0.0.1:80 -w 2 ranker:create()", "ranker"),
        ("/usr/bin/python3.11 -X dev serve/ranker.py --port 1", "ranker"),
        ("python -m uvicorn ranker:app", "ranker"),
        ("python -c pass", "python"),
        ("flask run", "flask"),
        ("flask --app shop/ranker.py run", "ranker"),
    ],
)
def test_a_service_without_a_name_is_called_after_its_app(command: str, service: str) -> None:
    assert guess_service(command.split()) == service


def test_the_folder_on_the_path_holds_sitecustomize_alone() -> None:
    assert [path.name for path in SITE.iterdir() if path.suffix == ".py"] == ["sitecustomize.py"]


def test_it_is_a_command_of_tailscope() -> None:
    (point,) = entry_points(group="tailscope.commands", name="run")

    assert point.load() is main


def test_a_password_of_the_collectors_address_is_not_said() -> None:
    ended = run("--endpoint", "http://user:secret@127.0.0.1:9", "--", sys.executable, "-c", "pass")

    assert ended.returncode == 0, ended.stderr
    assert "-> http://127.0.0.1:9;" in ended.stderr
    assert "secret" not in ended.stderr


OWN_PROVIDER = """
import sys, time
import tailscope
from opentelemetry import trace
early = trace.get_tracer("library")
with early.start_as_current_span("before"):
    pass
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
assert trace.get_tracer_provider() is provider
with tailscope.request("predict"), tailscope.stage("inference"):
    with early.start_as_current_span("query"), trace.get_tracer("late").start_as_current_span("row"):
        early.start_span("cell").end()
spans = {span.name: span for span in exporter.get_finished_spans()}
assert sorted(spans) == ["cell", "inference", "predict", "query", "row"], sorted(spans)
assert spans["query"].parent.span_id == spans["inference"].context.span_id
assert spans["cell"].parent.span_id == spans["row"].context.span_id
assert tailscope.stats().mode == "sdk"
"""


def test_a_provider_that_the_service_sets_by_itself_records_from_then_on(
    receiver: Receiver, tmp_path: Path
) -> None:
    program = tmp_path / "service.py"
    program.write_text(OWN_PROVIDER)

    ended = run("--", sys.executable, str(program), TAILSCOPE_ENDPOINT=receiver.endpoint)

    assert ended.returncode == 0, ended.stderr
    assert "Overriding" not in ended.stderr
    assert [span.name for span in receiver.spans()] in ([], ["before"])
