"""`tailscope dashboard`: start Streamlit on the dashboard, for a collector or a data directory.

Owns the flags, the choice of the collector and the life of the child processes. Knows nothing of the pages.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from tailscope.conventions import DEFAULT_DASHBOARD_PORT, DEFAULT_DATA_DIR, DEFAULT_URL, ENV_DATA, ENV_URL
from tailscope_analyzer._credentials import ACCESS_FILE, ENV_ACCESS_FILE
from tailscope_dashboard import palette
from tailscope_dashboard._child import ChildError, answers, collector_on, start, stop

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Generator
    from types import FrameType

OPTIONS: Final = {
    "server.headless": "true",
    # On a folder with a virtual environment the watcher alone takes the first page from 1 s to 24 s.
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    "logger.level": "warning",
    "logger.hideWelcomeMessage": "true",
}
"""How Streamlit is run; address, port and theme come on top."""

PAGE_START_S: Final = 60.0
"""Streamlit is up after 2 s; a cold disk and a busy machine take many times that."""

PAGE_STOP_S: Final = 3.0
"""Streamlit waits for open pages when it stops; it holds nothing that would be lost."""

ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - names them, binds none
"""Where a server answers that listens on every address."""

_LOOK_S: Final = 0.1


def parser() -> argparse.ArgumentParser:
    """Return the command's flags."""
    made = argparse.ArgumentParser(
        prog="tailscope dashboard",
        description="Look at the requests of a running collector, or of a data directory.",
    )
    source = made.add_mutually_exclusive_group()
    source.add_argument(
        "--url", metavar="URL", help=f"collector to look at (default: {ENV_URL}, then {DEFAULT_URL})"
    )
    source.add_argument(
        "--data",
        metavar="DIR",
        help="data directory to look at; where no collector serves it, one runs as long as the dashboard "
        f"(default: {ENV_DATA}, then ./{DEFAULT_DATA_DIR} where it exists and no collector answers)",
    )
    made.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    made.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_DASHBOARD_PORT,
        help="port; 0 is a free one (default: %(default)s)",
    )
    return made


def main(argv: list[str]) -> int:
    """Serve the dashboard until a signal comes; returns 0 after a clean stop, 1 where it cannot start."""
    args = parser().parse_args(argv)
    if find_spec("streamlit") is None:
        # The child process would say so in a traceback; the dispatcher names the extra.
        raise ModuleNotFoundError("No module named 'streamlit'", name="streamlit")
    _end_on_signals()
    try:
        port = free_port(args.host, args.port)
        with source_of(args.url, args.data) as url:
            return _serve(url, args.host, port)
    except KeyboardInterrupt:
        return 0
    except (ChildError, OSError) as error:
        _say(str(error))
        return 1


@contextmanager
def source_of(url: str | None, data: str | None) -> Generator[str]:
    """Yield the address of the collector to look at, started for the purpose where need be.

    The argument wins, then the environment, then a collector on the default port, then the default directory.
    With none of them the default address is yielded: the dashboard says what to start and goes on asking.
    """
    if not url and not data:
        url, data = os.environ.get(ENV_URL), os.environ.get(ENV_DATA)
    if not url and not data and Path(DEFAULT_DATA_DIR).is_dir() and not answers(DEFAULT_URL):
        data = DEFAULT_DATA_DIR
    if url or not data:
        yield url or DEFAULT_URL
        return
    with collector_on(Path(data)) as found, _access_to(Path(data)):
        yield found


@contextmanager
def _access_to(directory: Path) -> Generator[None]:
    """Let this process and its children use what the collector left in its directory for its owner."""
    before = os.environ.get(ENV_ACCESS_FILE)
    os.environ[ENV_ACCESS_FILE] = str(directory.resolve() / ACCESS_FILE)
    try:
        yield
    finally:
        if before is None:
            del os.environ[ENV_ACCESS_FILE]
        else:
            os.environ[ENV_ACCESS_FILE] = before


def free_port(host: str, port: int) -> int:
    """Return the port if it can be had, a free one for 0.

    Raises:
        OSError: the port is taken, or the address is not one of this machine.

    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(
                f"Cannot listen on {host}:{port}: {error.strerror}. Choose another with --port."
            ) from error
        return int(probe.getsockname()[1])


def streamlit_command(host: str, port: int) -> list[str]:
    """Return the command line that serves the application."""
    script = files("tailscope_dashboard").joinpath("_script", "tailscope_app.py")
    options = OPTIONS | {"server.address": host, "server.port": str(port)} | palette.theme_options()
    flags = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "streamlit", "run", str(script), *flags]


def _serve(url: str, host: str, port: int) -> int:
    script_folder = str(files("tailscope_dashboard").joinpath("_script"))
    child = start(
        streamlit_command(host, port),
        env=os.environ | {ENV_URL: url},
        cwd=script_folder,  # a .streamlit/config.toml in the user's folder is another application's
        stdout=sys.stderr,
    )
    try:
        if not answers(url):
            _say(f"No collector answers at {url}; the dashboard says how to start one, and goes on asking.")
        _await_page(child, host, port)
    except BaseException:
        child.kill()  # asked politely while it starts, Streamlit ends with a traceback
        child.wait()
        raise
    try:
        shown = f"[{host}]" if ":" in host else host
        _say(f"Dashboard: http://{shown}:{port}  (collector: {url})  Ctrl-C stops it.")
        code = child.wait()
    finally:
        stop(child, within_s=PAGE_STOP_S)
    if code != 0:
        _say(f"Streamlit ended with exit code {code}; it says why above.")
    return 0 if code == 0 else 1


def _await_page(child: subprocess.Popen[bytes], host: str, port: int) -> None:
    deadline = time.monotonic() + PAGE_START_S
    while not _is_up(ANY_ADDRESS.get(host, host), port):
        if child.poll() is not None:
            raise ChildError(f"Streamlit ended at once with exit code {child.returncode}; it says why above.")
        if time.monotonic() > deadline:
            raise ChildError(f"Streamlit did not answer on {host}:{port} within {PAGE_START_S:.0f} s.")
        time.sleep(_LOOK_S)


def _is_up(host: str, port: int) -> bool:
    with closing(HTTPConnection(host, port, timeout=2)) as connection:
        try:
            connection.request("GET", "/_stcore/health")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False


def _end_on_signals() -> None:
    # Explicitly: a shell starts what it puts in the background with SIGINT ignored, and Python keeps that.
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    # The children are in groups of their own, so a terminal that closes ends only us; nohup stays nohup.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port (0 to 65535)")
    return int(text)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a command talks on stderr
