"""`tailscope demo`: collector, real model service with planted faults, load, report and dashboard.

Owns the order of a run and its exit code. Every process it starts is stopped again, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tailscope.demo import _measure, _show
from tailscope.demo._arrivals import RATE, Shares
from tailscope.demo._children import ChildError, Children
from tailscope.demo._faults import planted_faults
from tailscope.demo._fleet import TAILSCOPE, Fleet
from tailscope.demo._measure import AskError, Collector, Window
from tailscope.demo._wire import RANKER, Calibration

if TYPE_CHECKING:
    from collections.abc import Generator

REQUESTS = 2000
LEAST_REQUESTS = 320
"""The report refuses a p99 of fewer than 300 requests; a few may fail."""

PERCENTILE = 95.0
"""Each of the five faults meets about 2 % of the requests: the p95 stands in the middle of the slow tenth."""

ARRIVAL_TIMEOUT_S = 15.0
POLL_S = 0.2
INTERRUPTED = 130
SQL_HINT = (
    "{command} sql --url {url} "
    "'select stage, category, round(sum(self_ms) / (select count(*) from requests), 2) as ms_per_request "
    "from stages group by all order by 3 desc'"
)


@dataclass(frozen=True, slots=True)
class Driven:
    """What the load did: its last event, when it began (Unix seconds), and the services' own measurements."""

    end: dict[str, Any]
    began: float
    calibration: Calibration


def main(argv: list[str]) -> int:
    """Run the demo and return the exit code."""
    options = parse(argv)
    talk = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="tailscope-demo-"))
    try:
        with sigterm_as_interrupt(), Children(folder) as children:
            fleet = Fleet(children, data=options.data or folder / "data", seed=options.seed)
            run(fleet, options, talk)
    except (ChildError, AskError) as error:
        talk.print(
            f"The demo failed: {error}\nIts logs: {folder}",
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return 1
    except KeyboardInterrupt:
        talk.print("Stopped.")
        code = INTERRUPTED
    else:
        code = 0
    shutil.rmtree(folder, ignore_errors=True)
    return code


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the options; end with exit code 2 on a wrong one."""
    parser = argparse.ArgumentParser(
        prog="tailscope demo",
        description="Start a collector and a real model service with planted faults, and explain its tail.",
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=REQUESTS,
        help=f"how many (default %(default)s, at least {LEAST_REQUESTS}; 40 a second)",
    )
    parser.add_argument("--no-dashboard", action="store_true", help="exit after the report")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="keep the data here (default: a folder that is removed)"
    )
    parser.add_argument("--seed", type=int, default=1, help="another seed plans other requests")
    options = parser.parse_args(argv)
    if options.requests < LEAST_REQUESTS:
        parser.error(f"--requests {options.requests}: the report needs {LEAST_REQUESTS} at least")
    return options


@contextmanager
def sigterm_as_interrupt() -> Generator[None]:
    """Let SIGTERM stop the run as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(fleet: Fleet, options: argparse.Namespace, talk: Console) -> None:
    """Collect, explain, and keep the dashboard open until Ctrl-C, unless told not to."""
    began = time.monotonic()
    driven = drive(fleet, options.requests, talk)
    collector = Collector(fleet.url)
    window = find_window(collector, driven, talk)
    explain(collector, window, driven)
    talk.print(f"From start to report: {time.monotonic() - began:.0f} s.")
    if options.no_dashboard:
        return
    with talk.status("Starting the dashboard"):
        dashboard, address = fleet.dashboard()
    talk.print(
        "Ask with SQL, from another terminal:",
        SQL_HINT.format(command=command_path(), url=fleet.url),
        markup=False,
        soft_wrap=True,
    )
    same = urlencode(
        {
            "service": RANKER,
            "operation": window.operation,
            "since": f"{window.since}Z",
            "percentile": f"{window.percentile:g}",
        }
    )
    talk.print(f"The same requests, to look at: {address}/?{same}", markup=False, soft_wrap=True)
    talk.print(f"[bold]Dashboard: {address}[/bold]   (Ctrl-C stops everything)")
    try:
        code = dashboard.process.wait()
    except KeyboardInterrupt:
        talk.print("Stopping everything.")
        return
    raise dashboard.failure(f"ended by itself with exit code {code}")


def command_path() -> str:
    """Return how to call `tailscope` from another terminal, which may not have our environment."""
    script = Path(sys.executable).with_name("tailscope")
    if not script.exists():
        return f"{sys.executable} -m tailscope"
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)


def drive(fleet: Fleet, requests: int, talk: Console) -> Driven:
    """Start everything, send the load, and stop the services, which makes them send their last spans."""
    with talk.status("Starting the collector, the accounts service and three instances of the ranker"):
        fleet.collector()
        calibration = fleet.services()
    talk.print(
        f"Sending {requests:,} requests, {RATE:.0f} a second on average, some of them into planted faults.",
        soft_wrap=True,
    )
    began = 0.0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=talk) as progress:
        task = progress.add_task("Requests", total=requests)

        def hear(event: dict[str, Any]) -> None:
            nonlocal began
            if event["event"] == "start":
                began = event["unix"]
            if event["event"] == "progress":
                progress.update(task, completed=event["done"])

        end = fleet.load(requests, hear)
    fleet.stop_services()
    return Driven(end, began, calibration)


def find_window(collector: Collector, driven: Driven, talk: Console) -> Window:
    """Wait until the collector has every answered request, and return the window that holds them."""
    since = datetime.fromtimestamp(driven.began, UTC).replace(tzinfo=None).isoformat()
    expected = driven.end["answered"]
    deadline = time.monotonic() + ARRIVAL_TIMEOUT_S
    arrived = _measure.busiest_operation(collector, since)
    while arrived.requests < expected and time.monotonic() < deadline:
        time.sleep(POLL_S)
        arrived = _measure.busiest_operation(collector, since)
    if arrived.requests < expected:
        talk.print(
            f"Only {arrived.requests:,} of {expected:,} answered requests have arrived.", style="yellow"
        )
    return Window(operation=arrived.operation, since=since, percentile=PERCENTILE)


def explain(collector: Collector, window: Window, driven: Driven) -> None:
    """Print the report as `tailscope report` does, then the table of what was planted."""
    options = ["--url", collector.url, "--service", RANKER, "--operation", window.operation]
    options += ["--since", f"{window.since}Z", "--percentile", f"{window.percentile:g}"]
    code = subprocess.run([*TAILSCOPE, "report", *options], check=False).returncode
    if code:
        raise AskError(f"tailscope report {' '.join(options)}: exit code {code}")
    report = collector.report(window)
    faults = planted_faults(driven.calibration, shares=Shares())
    found = _measure.measure(collector, faults, window, report)
    _show.planted(found, report, driven.end)
