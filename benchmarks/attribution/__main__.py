"""How right the analyzer is: every bar with what was measured, in one configuration.

usage: python -m benchmarks.attribution [--labelled DIR] [--only NAME ...] [--every N]

DIR holds shapleyiq/ and nezha/; without it, what needs them is left out. Each module of this package with a
function `rows(args)` adds its bars. Names of the labelled data are hashed and times scaled, by a salt that is
printed, so that nothing memorised helps. Exit code 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import platform
import random
import sys
import time
from pathlib import Path

import benchmarks.attribution as package

MISSED = "missed"


def main() -> int:
    """Run the measurements and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labelled", type=Path, help="folder of shapleyiq/ and nezha/")
    parser.add_argument("--only", nargs="*", help="names of measurements")
    parser.add_argument("--every", type=int, default=1, help="every n-th labelled case only")
    parser.add_argument("--salt", default=f"{random.SystemRandom().getrandbits(32):08x}")
    args = parser.parse_args()
    names = [module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_"]
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, salt {args.salt}"
    )
    missed = False
    print("| what | measured | bar | n | s |\n|---|---|---|---|---|")
    for name in names:
        module = importlib.import_module(f"{package.__name__}.{name}")
        if not hasattr(module, "rows") or (args.only and name not in args.only):
            continue
        started = time.monotonic()
        for what, measured, bar, n in module.rows(args):
            missed |= MISSED in measured
            print(f"| {what} | {measured} | {bar} | {n} | {time.monotonic() - started:.0f} |", flush=True)
    return int(missed)


sys.exit(main())
