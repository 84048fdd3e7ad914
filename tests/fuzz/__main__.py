"""Fuzz one target for a while: `python -m tests.fuzz json --minutes 10 [--seed 1]`.

A finding ends the run with exit code 1 and says how to see it again; a crash of the process leaves the case
in the file that is named at the start.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import TARGETS
from tests.fuzz.targets import Finding, Running

SETTLE_EVERY = 2_000
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def main() -> int:
    """Run until the time is over or something is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=(*TARGETS, "openapi"))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    faulthandler.enable()
    with tempfile.TemporaryDirectory(prog := "tailscope-fuzz-") as folder:
        last = Path(tempfile.gettempdir()) / f"{prog}{args.target}-{args.seed}.case"
        print(f"{args.target}, seed {args.seed}, the last case is in {last}", flush=True)  # noqa: T201
        running = Running(Path(folder) / "data")
        if args.target == "openapi":
            try:
                return drive(running.collector.url, args.seed, args.minutes * 60)
            finally:
                running.close()
        try:
            tried = explore(running, args.target, args.seed, args.minutes * 60, last)
        except Finding as finding:
            print(f"FOUND with seed {args.seed}: {finding}", file=sys.stderr)  # noqa: T201
            return 1
        finally:
            running.close()
        print(f"{args.target}: {tried:,} cases in {args.minutes:g} min, nothing found")  # noqa: T201
        last.unlink(missing_ok=True)
    return 0


def drive(url: str, seed: int, seconds: float) -> int:
    """Let schemathesis make requests from the OpenAPI document; returns its exit code."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--no-color"]
    command += ["--max-time", f"{seconds:g}", "--seed", str(seed), "--checks", CHECKS, "--mode", "all"]
    return subprocess.run(command, check=False, timeout=seconds + 300).returncode


def explore(running: Running, name: str, seed: int, seconds: float, last: Path | None = None) -> int:
    """Try cases until the time is over and return how many; raises Finding."""
    target, chance = running.target(name), random.Random(seed)  # noqa: S311 - to be repeated, not secret
    deadline, tried = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        case = target.case(chance)
        if last is not None:
            last.write_bytes(case)
        target.attempt(case)
        if running.faults.first is not None:
            raise Finding(f"{running.faults.first}\nafter {case[:2000]!r}")
        tried += 1
        if tried % SETTLE_EVERY == 0:
            target.settle()
    target.settle()
    return tried


if __name__ == "__main__":
    sys.exit(main())
