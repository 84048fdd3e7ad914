# ruff: noqa: INP001 - a folder on the path, no package
"""What Python imports at its start, in each process of a command of `tailscope run`.

Runs the sitecustomize that this one hides, then starts Tailscope. Needs nothing but the standard library: the
command may run another interpreter than ours, which does not have Tailscope.
"""

import os
import sys


def run_the_hidden_one(own: str) -> None:
    """Import the next sitecustomize on the path, which would have been imported without us."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    rest = [path for path in sys.path if os.path.realpath(path or ".") != own]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        # It may look itself up, and whoever imports sitecustomize wants the service's own.
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def start() -> None:
    """Start Tailscope, or say why not in the process that was asked for."""
    try:
        from tailscope._run.bootstrap import start_process
    except ImportError as error:
        if os.environ.get("TAILSCOPE_RUN_PID") == str(os.getpid()):
            sys.stderr.write(
                f"tailscope run: nothing is recorded, {sys.executable} has no Tailscope: {error}\n"
            )
        return
    start_process()


try:
    run_the_hidden_one(os.path.realpath(__file__).rpartition(os.sep)[0])
finally:
    start()
