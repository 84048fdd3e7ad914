"""Builds the compiled recording core where a compiler is, and goes on without it where none is.

Owns the one optional step of the build. The pure-Python core behaves the same, so that a failure here is a
line on stderr and never an error. `TAILSCOPE_BUILD_CORE=0` leaves the core out, `=require` makes a failure an
error.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("instrumentation/tailscope")


class CoreHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `tailscope/_core.*.so` to the wheel, or puts it beside the sources of an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the core before the wheel is put together."""
        wanted = os.environ.get("TAILSCOPE_BUILD_CORE", "1").strip().lower()
        if self.target_name != "wheel" or wanted in {"0", "false", "no"}:
            return
        package = Path(self.root) / PACKAGE
        self._folder = tempfile.TemporaryDirectory(prefix="tailscope-core-")  # gone with the hook
        try:
            built = build(package, Path(self._folder.name))
        except (Exception, SystemExit) as error:
            if wanted == "require":
                raise
            sys.stderr.write(f"tailscope: no compiled core, the pure-Python one will run: {error}\n")
            return
        if version == "editable":
            target = package / built.name
            target.unlink(missing_ok=True)  # a running process may have the old one mapped
            target.write_bytes(built.read_bytes())
            return
        build_data["force_include"][str(built)] = f"tailscope/{built.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def build(package: Path, into: Path) -> Path:
    """Translate and compile the core; return the extension module's file."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    extension = Extension(
        "tailscope._core",
        [str(package / "_core.pyx")],
        include_dirs=[str(package)],
        depends=[str(package / "_core.h")],
        extra_compile_args=[
            "-O2",
            "-fno-strict-aliasing",
            *shlex.split(os.environ.get("TAILSCOPE_CORE_CFLAGS", "")),
        ],
        extra_link_args=shlex.split(os.environ.get("TAILSCOPE_CORE_LDFLAGS", "")),
    )
    distribution = Distribution({"ext_modules": cythonize([extension], build_dir=str(into), quiet=True)})
    command: Any = distribution.get_command_obj("build_ext")
    command.build_temp, command.build_lib = str(into), str(into)
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath("tailscope._core"))


if __name__ == "__main__":  # for a checkout without an installation: python hatch_build.py [FOLDER]
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE
    with tempfile.TemporaryDirectory(prefix="tailscope-core-") as made_in:
        made = build(folder, Path(made_in))
        (folder / made.name).unlink(missing_ok=True)
        (folder / made.name).write_bytes(made.read_bytes())
    sys.stdout.write(f"{folder / made.name}\n")
