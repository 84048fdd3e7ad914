"""`tailscope run -- COMMAND...`: becomes the command, with Tailscope in each of its Python processes.

Owns the options and the environment of the command. The command replaces this process, so that its exit code
and the signals sent to it are its own. Never imports what the command will.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailscope._run.bootstrap import NO_CONTRIB

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

SITE: Final = Path(__file__).resolve().parent / "site"
"""The folder whose sitecustomize Python imports first."""

RUN_PID: Final = "TAILSCOPE_RUN_PID"
SERVICE_VARIABLES: Final = ("TAILSCOPE_SERVICE", "OTEL_SERVICE_NAME")
RESOURCE_VARIABLES: Final = ("TAILSCOPE_RESOURCE_ATTRIBUTES", "OTEL_RESOURCE_ATTRIBUTES")
LAUNCHERS: Final = frozenset({"uvicorn", "gunicorn", "hypercorn", "granian", "daphne"})
"""Commands whose argument `module:app` names the service better than they do."""

DESCRIPTION: Final = """Run a Python service and record it without a change of its code: requests of FastAPI,
Starlette, Flask, Django and gRPC, calls of its clients, model libraries. Options come before the command."""


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        "tailscope run", usage="tailscope run [options] -- COMMAND...", description=DESCRIPTION
    )
    options.add_argument("--service", help="name of the service; guessed from the command by default")
    options.add_argument("--endpoint", help="the collector; default http://127.0.0.1:4317")
    options.add_argument("--protocol", choices=("grpc", "http/protobuf"), help="how spans are sent")
    options.add_argument(
        "--no-contrib",
        action="store_true",
        help="leave OpenTelemetry's instrumentation packages switched off",
    )
    options.add_argument("--quiet", action="store_true", help="say nothing on stderr")
    options.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    return options


def main(argv: list[str]) -> int:
    """Become the command; return only if that is not possible."""
    options = parser().parse_args(argv)
    command: list[str] = options.command
    if command[:1] == ["--"]:
        del command[0]
    if not command:
        parser().print_usage(sys.stderr)
        return fail("tailscope run: which command? For example: tailscope run -- uvicorn app:app")
    program = found(command[0])
    if program is None:
        return fail(
            f"tailscope run: no such command: {command[0]}. It is not on the PATH or beside {sys.executable}."
        )
    environment = dict(os.environ)
    configure(environment, options, command)
    if not options.quiet:
        print(banner(environment, contrib=not options.no_contrib), file=sys.stderr, flush=True)  # noqa: T201
    try:
        # Nothing of this process is left: exit code, signals and terminal are the command's.
        os.execve(program, command, environment)  # noqa: S606 - the command is the user's
    except OSError as error:
        return fail(f"tailscope run: {program} cannot be run: {error.strerror}")


def found(command: str) -> str | None:
    """Return the program: from the PATH, else from our own environment, which nobody need have activated."""
    beside = os.path.dirname(sys.executable)  # noqa: PTH120 - a path resolved would leave the environment
    return shutil.which(command) or shutil.which(command, path=beside)


def fail(message: str) -> int:
    """Say what is wrong and return the code of wrong usage."""
    print(message, file=sys.stderr)  # noqa: T201
    return 2


def configure(environment: MutableMapping[str, str], options: argparse.Namespace, command: list[str]) -> None:
    """Put the options and our sitecustomize into the environment that the command and its children get."""
    for name in ("service", "endpoint", "protocol"):
        value = getattr(options, name)
        if value:
            environment[f"TAILSCOPE_{name.upper()}"] = value
    if not is_named(environment):
        environment["TAILSCOPE_SERVICE"] = guess_service(command)
    if options.no_contrib:
        environment[NO_CONTRIB] = "true"
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path != str(SITE)]
    environment["PYTHONPATH"] = os.pathsep.join([str(SITE), *filter(None, paths)])
    environment[RUN_PID] = str(os.getpid())


def is_named(environment: Mapping[str, str]) -> bool:
    """Say whether the environment names the service."""
    named = any(environment.get(name) for name in SERVICE_VARIABLES)
    return named or any("service.name=" in environment.get(name, "") for name in RESOURCE_VARIABLES)


def guess_service(command: list[str]) -> str:
    """Return a name for a service that has none: the module of its app, its script, or its program."""
    program, *arguments = command
    name = Path(program).stem
    if name in LAUNCHERS:
        apps = [word for word in arguments if ":" in word and not word.startswith("-") and "/" not in word]
        module = next((word.partition(":")[0] for word in apps if not word[0].isdigit()), name)
        return module.rpartition(".")[2]
    if name == "flask":
        named = [word for flag, word in pairwise(arguments) if flag in {"--app", "-A"}]
        return Path(named[0].partition(":")[0]).stem if named else name
    if name.startswith("python"):
        inner = module_argument(arguments)
        return guess_service(inner) if inner else name
    return name


def module_argument(arguments: list[str]) -> list[str]:
    """Return the command inside of `python [options] [-m] COMMAND`."""
    skip = False
    for place, word in enumerate(arguments):
        if skip:
            skip = False
        elif word in {"-X", "-W"}:
            skip = True
        elif word == "-m":
            return arguments[place + 1 :]
        elif word == "-c":
            return []
        elif not word.startswith("-"):
            return arguments[place:]
    return []


def banner(environment: Mapping[str, str], *, contrib: bool) -> str:
    """Say in one line what is recorded, of what, and where it goes."""
    from tailscope import _settings, integrations

    settings = _settings.resolve({}, environment)
    names = integrations.available()
    if contrib:
        from tailscope.integrations.contrib import available

        names += [f"contrib:{name}" for name in available()]
    if settings.disabled:
        return "tailscope run: switched off by the environment; nothing is recorded"
    scheme, _, rest = settings.target.endpoint.partition("://")
    target = f"{scheme}://{rest.rpartition('@')[2]}"  # without a password
    return f"tailscope run: {settings.service} -> {target}; on: {', '.join(names) or 'nothing'}"
