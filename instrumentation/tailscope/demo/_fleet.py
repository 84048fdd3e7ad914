"""The processes of a run: collector, accounts, three rankers, load, dashboard.

Owns how each is started and when it counts as up. Decides nothing about what is shown.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tailscope.conventions import DEFAULT_DASHBOARD_PORT, DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT
from tailscope.demo import _children, _faults
from tailscope.demo._measure import get_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.demo._children import Child, Children
    from tailscope.demo._wire import Calibration

TAILSCOPE = (sys.executable, "-m", "tailscope")
DEMO = (sys.executable, "-m")


class Fleet:
    """Start the processes of one run, in the order in which they need each other."""

    def __init__(self, children: Children, *, data: Path, seed: int) -> None:
        self._children = children
        self._services = children.nested()
        self._data = data
        self._seed = str(seed)
        self.url = ""
        self._grpc = ""
        self._targets: list[str] = []

    def collector(self) -> None:
        """Start `tailscope serve`, on the default ports where they are free."""
        ports = [_children.free_port(DEFAULT_GRPC_PORT), _children.free_port(DEFAULT_HTTP_PORT)]
        grpc, http = ports if all(ports) else (0, 0)
        child = self._children.start(
            "collector",
            [
                *TAILSCOPE,
                "serve",
                "--data",
                str(self._data),
                "--grpc-port",
                str(grpc),
                "--http-port",
                str(http),
            ],
        )
        _children.wait_until(child, lambda: self._is_collecting(child), what="it took spans")

    def _is_collecting(self, child: Child) -> bool:
        # collector.json may be one of an earlier run on the same directory: the process id tells them apart.
        with suppress(OSError, json.JSONDecodeError):
            found = json.loads((self._data / "collector.json").read_text())
            if found["pid"] == child.process.pid:
                self.url, self._grpc = found["url"], found["grpc"]
                return _children.answers(f"{self.url}/readyz")
        return False

    def services(self) -> Calibration:
        """Start the accounts service and the rankers; return what the first ranker measured of itself."""
        accounts, address = self._service("accounts", "accounts")
        started = [(accounts, address)]
        for instance in _faults.INSTANCES:
            passes = _faults.SLOW_PASSES if instance == _faults.SLOW_INSTANCE else 1
            child, target = self._service(
                "service",
                instance,
                *("--accounts", address, "--passes", str(passes)),
                *("--bulk-window-ms", str(_faults.BULK_WINDOW_MS)),
                *("--heap", str(_faults.HEAP_ENTRIES), "--collect-every", str(_faults.COLLECT_EVERY)),
            )
            self._targets.append(target)
            started.append((child, target))
        for child, url in started:
            _children.wait_until(child, partial(_children.answers, f"{url}/healthz"), what="it answered")
        # The service answers with what it declares as `Calibration`.
        return cast("Calibration", get_json(f"{self._targets[0]}/calibration"))

    def _service(self, module: str, instance: str, *options: str) -> tuple[Child, str]:
        with _children.bound_socket() as sock:
            command = [*DEMO, f"tailscope.demo.{module}", "--fd", str(sock.fileno()), "--instance", instance]
            command += ["--collector", self._grpc, "--seed", self._seed, *options]
            child = self._services.start(instance, command, hand_down=[sock])
            return child, f"http://127.0.0.1:{sock.getsockname()[1]}"

    def load(self, requests: int, hear: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Run the load to its end; `hear` gets each of its events, the last one is returned."""
        command = [*DEMO, "tailscope.demo.load", "--requests", str(requests), "--seed", self._seed]
        for target in self._targets:
            command += ["--target", target]
        child = self._services.start("load", command, talks=True)
        event: dict[str, Any] = {}
        for line in child.process.stdout or ():
            event = json.loads(line)
            hear(event)
        code = child.process.wait()
        if event.get("event") != "end":
            raise child.failure(f"ended with exit code {code} before all requests were sent")
        return event

    def stop_services(self) -> None:
        """Stop all but the collector; each service sends its last spans before it ends."""
        self._services.stop()

    def dashboard(self) -> tuple[Child, str]:
        """Start the dashboard and return it with its address."""
        port = _children.free_port(DEFAULT_DASHBOARD_PORT)
        if not port:
            with _children.bound_socket() as sock:
                port = int(sock.getsockname()[1])
        child = self._children.start(
            "dashboard", [*TAILSCOPE, "dashboard", "--url", self.url, "--port", str(port)]
        )
        url = f"http://127.0.0.1:{port}"
        _children.wait_until(child, lambda: _children.answers(f"{url}/_stcore/health"), what="it answered")
        return child, url
