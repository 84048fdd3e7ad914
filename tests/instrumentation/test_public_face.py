"""The public names, and what importing and not initialising costs."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

import tailscope

if TYPE_CHECKING:
    from tests.instrumentation.conftest import Run


def test_public_names_are_these() -> None:
    assert tailscope.__all__ == [
        "batch",
        "current",
        "dependency",
        "enqueue",
        "flush",
        "init",
        "profile_slow",
        "request",
        "shutdown",
        "stage",
        "stats",
        "stream",
        "time_layers",
    ]
    assert all(callable(getattr(tailscope, name)) for name in tailscope.__all__)
    assert set(tailscope.__all__) <= set(dir(tailscope))


def test_the_version_is_that_of_the_distribution() -> None:
    assert tailscope.__version__ == version("tailscope")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'stages'"):
        _ = tailscope.stages  # type: ignore[attr-defined]


def test_import_loads_nothing_and_starts_nothing(run_python: Run) -> None:
    done = run_python(
        "import sys, threading, gc\n"
        "before = len(gc.callbacks)\n"
        "import tailscope\n"
        "heavy = ('opentelemetry', 'grpc', 'google', 'duckdb', 'polars', 'pyarrow', 'streamlit', 'numpy')\n"
        "loaded = [name for name in heavy if name in sys.modules]\n"
        "print(loaded, threading.active_count(), len(gc.callbacks) - before)"
    )

    assert (done.stdout, done.stderr) == ("[] 1 0\n", "")


def test_using_it_loads_opentelemetry_and_no_grpc_before_init(run_python: Run) -> None:
    done = run_python(
        "import sys, tailscope\n"
        "with tailscope.request('r'), tailscope.stage('auth'): pass\n"
        "print('opentelemetry.trace' in sys.modules)\n"
        "heavy = ('grpc', 'google.protobuf', 'duckdb', 'polars', 'pyarrow', 'opentelemetry.sdk')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "tailscope.init()\n"
        "print('grpc' in sys.modules)\n"
        "print([name for name in heavy if name in sys.modules and name != 'grpc'])"
    )

    assert (done.stdout, done.stderr) == ("True\n[]\nTrue\n[]\n", "")


def test_everything_works_and_records_nothing_before_init() -> None:
    @tailscope.request
    def predict(value: int) -> int:
        with tailscope.stage("preprocess", attributes={"a": 1}) as stage:
            stage.set("b", 2)
            stage.event("retry")
        with tailscope.dependency("GET user", peer="redis"):
            tailscope.current().set("c", 3)
        ticket = tailscope.enqueue()
        with tailscope.batch([ticket], max_size=8) as batch:
            batch.set("d", 4)
        return value + 1

    assert predict(1) == 2
    assert tailscope.flush(timeout_s=0.1)
    stats = tailscope.stats()
    assert (stats.mode, stats.recorded, stats.errors) == ("off", 0, {})
    tailscope.shutdown()
