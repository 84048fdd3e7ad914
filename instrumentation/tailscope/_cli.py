"""The `tailscope` command: finds a subcommand by its entry point, imports that one alone and runs it.

Owns the list of commands and the exit codes (0 ok, 1 failed, 2 wrong usage). Knows nothing of what a command
does; a command whose extra is not installed is answered with the exact `pip install` line.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points, version

from tailscope.conventions import COMMANDS_GROUP

# name: (the extra that brings what it needs, one line of help). A plugin's command needs no row here.
COMMANDS = {
    "demo": ("demo", "a model service with planted faults, its report and the dashboard"),
    "serve": ("collector", "run the collector: OTLP in, DuckDB, SQL out"),
    "dashboard": ("dashboard", "look at the requests of a running collector or a data directory"),
    "sql": ("analyzer", "ask with SQL"),
    "report": ("analyzer", "why the tail is slow: milliseconds per stage, with intervals"),
    "compare": ("analyzer", "what became slower between windows, versions or files; a gate for builds"),
    "slo": ("analyzer", "targets: met or missed, how fast the budget goes, what misses them"),
    "whatif": ("analyzer", "predicted percentiles if a stage, a queue or a batch changed"),
    "export": ("analyzer", "traces as OTLP, Jaeger, Perfetto or Parquet"),
    "trace": ("analyzer", "one trace: waterfall, critical path, ledger"),
    "import": ("collector", "load trace files"),
    "run": ("", "start a Python service with the instrumentation on, without a change of its code"),
    "doctor": ("analyzer", "is the tracing well: what arrives, what is missing, dropped, clocks"),
}

USAGE = """usage: tailscope COMMAND [options]

{commands}

'tailscope COMMAND --help' explains one of them; 'tailscope --version' prints the version."""


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    args = sys.argv[1:] if argv is None else argv
    found = {point.name: point for point in entry_points(group=COMMANDS_GROUP)}
    if not args or args[0] in {"-h", "--help", "help"}:
        print(usage(found), file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    if args[0] == "--version":
        print(f"tailscope {version('tailscope')}")  # noqa: T201
        return 0
    return run(args[0], args[1:], found)


def run(name: str, args: list[str], found: dict[str, EntryPoint]) -> int:
    """Import the command's module, and only that, and call it."""
    if name not in found:
        near = get_close_matches(name, [*found, *COMMANDS], n=1)
        hint = f" Did you mean '{near[0]}'?" if near else " 'tailscope --help' lists them."
        return fail(f"No such command: {name}.{hint}", code=2)
    try:
        command = found[name].load()
        return int(command(args) or 0)
    except ModuleNotFoundError as error:
        # Raised by the import of the command, or later by one that imports what it needs when it needs it.
        missing = (error.name or "").partition(".")[0]
        if missing.startswith("tailscope"):
            raise
        extra = COMMANDS.get(name, ("all", ""))[0]
        return fail(f"tailscope {name} needs {missing}. Install it with: pip install 'tailscope[{extra}]'")
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `tailscope sql ... | head`: the reader has seen enough. Without stdout the exit raises nothing more.
        sys.stdout = None
        return 0


def usage(found: dict[str, EntryPoint]) -> str:
    """List the commands, ours first and in the order of the guide, then those of plugins."""
    names = [*COMMANDS, *sorted(set(found) - set(COMMANDS))]
    lines = [f"  {name:<11}{COMMANDS.get(name, ('', ''))[1]}".rstrip() for name in names]
    return USAGE.format(commands="\n".join(lines))


def fail(message: str, *, code: int = 1) -> int:
    """Say on stderr what went wrong and return the exit code."""
    print(message, file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
