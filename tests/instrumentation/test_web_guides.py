"""The guides to web frameworks, gRPC, clients and `tailscope run`: their code runs and records."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.instrumentation.test_run import BIN, free_port, started

if TYPE_CHECKING:
    from tests.instrumentation.receiver import Receiver

ROOT = Path(__file__).resolve().parents[2]

httpx = pytest.importorskip("httpx")

SERVE = """
import socket, threading, time, uvicorn

def serve(app):
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    def stop():
        server.should_exit = True
        thread.join(9)
    return f"http://127.0.0.1:{listener.getsockname()[1]}", stop
"""

# For each page: what is run before and after its code, and the spans that must have arrived.
PAGES = {
    "run": ("", "", {"predict"}),
    "fastapi": (
        SERVE,
        """
import httpx
for served, path in ((app, "/rank/4"), (app, "/me"), (service, "/none")):
    url, stop = serve(served)
    httpx.get(url + path, headers={"x-key": "ada"})
    stop()
""",
        {"GET /rank/{item}", "GET /me", "inference", "auth", "GET"},
    ),
    "flask": (
        "",
        "assert list(service({'REQUEST_METHOD': 'PUT'}, print)) == [b'hello']",
        {"GET /rank/<int:item>", "PUT"},
    ),
    "django": (
        "",
        """
from wsgiref.util import setup_testing_defaults
environ = {"PATH_INFO": "/rank/4/"}
setup_testing_defaults(environ)
answer = application(environ, lambda *_: None)
assert b"".join(answer) == b"8"
answer.close()
""",
        {"GET /rank/<int:item>/", "inference"},
    ),
    "grpc": (
        "",
        """
server.start()
try:
    channel.unary_unary("/acme.Ranker/One")(b"a", timeout=5)
except grpc.RpcError as error:
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
server.stop(0).wait()
""",
        {"acme.Ranker/One"},
    ),
    "clients": (
        SERVE
        + """
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
URL, stop = serve(app)
""",
        "assert users() == 'ok'\nstop()",
        {"predict", "network.connect"},
    ),
}
NEEDS = {"fastapi": "fastapi", "flask": "flask", "django": "django", "run": "fastapi"}


def code_of(page: str) -> str:
    """Return the Python blocks of a page as one program, which records under the page's file name."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_guide_runs_and_records(page: str, receiver: Receiver, run_python: Any) -> None:
    if page in NEEDS:
        pytest.importorskip(NEEDS[page])
    before, after, names = PAGES[page]
    end = "\nassert tailscope.stats().errors == {}, tailscope.stats()\n"

    ended = run_python(before + code_of(page) + after + end, TAILSCOPE_ENDPOINT=receiver.endpoint)

    assert ended.returncode == 0, ended.stderr
    assert {span.name for span in receiver.spans()} >= names


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_guide_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)

    assert [target for target in targets if not (ROOT / "docs" / target).resolve().exists()] == []


def test_every_option_of_the_command_is_explained() -> None:
    from tailscope._run.command import parser

    text = (ROOT / "docs" / "run.md").read_text(encoding="utf-8")
    options = [option for action in parser()._actions for option in action.option_strings]
    assert [option for option in options if option not in {"-h", "--help"} and option not in text] == []


SERVERS = {
    "fastapi": ("uvicorn examples.fastapi_service:app --log-level warning --port", "POST", "/predict"),
    "flask": ("flask --app examples.flask_service run --port", "GET", "/chat/one%20two"),
    "django": ("gunicorn examples.django_service:app --log-level warning -b", "GET", "/rank/7/"),
}
EXAMPLE_SPANS = {
    "fastapi": {"POST /predict", "auth", "GET account", "preprocess", "inference"},
    "flask": {"GET /chat/<prompt>", "inference", "inference.decode"},
    "django": {"GET /rank/<int:item>/", "preprocess", "inference"},
}


@pytest.mark.parametrize("example", SERVERS)
def test_an_example_serves_and_records(example: str, receiver: Receiver, tmp_path: Path) -> None:
    line, method, path = SERVERS[example]
    words = line.split()
    pytest.importorskip(example)
    if not (BIN / words[0]).exists():
        pytest.skip(f"{words[0]} is not installed")
    port = free_port()
    address = f"127.0.0.1:{port}" if words[-1] == "-b" else str(port)
    command = [str(BIN / words[0]), *words[1:], address]
    environment = {"TAILSCOPE_ENDPOINT": receiver.endpoint, "PYTHONPATH": str(ROOT)}

    with started(command, tmp_path, port, **environment) as server:
        assert httpx.request(method, f"http://127.0.0.1:{port}{path}", content=None).status_code == 200
        receiver.wait_for(
            lambda spans: {span.name for span in spans} >= EXAMPLE_SPANS[example], f"spans of {example}"
        )
        server.send_signal(signal.SIGTERM)
        server.wait(20)


def test_the_example_of_grpc_runs(receiver: Receiver, run_python: Any) -> None:
    program = (
        f"import runpy; runpy.run_path({str(ROOT / 'examples' / 'grpc_service.py')!r}, run_name='__main__')"
    )

    ended = run_python(program, TAILSCOPE_ENDPOINT=receiver.endpoint)

    assert (ended.returncode, ended.stdout) == (0, "HELLO\n"), ended.stderr
    kinds = {span.kind: span for span in receiver.spans() if span.name == "example.Upper/Shout"}
    assert kinds["server"].parent_id == kinds["client"].span_id
