"""docs/signals.md: its code runs and records what the page says; no key and no metric is unexplained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import tailscope
from tailscope._signals import _names
from tests.instrumentation.metrics_receiver import grpc_metrics_receiver
from tests.instrumentation.signals_process import signals_of
from tests.instrumentation.test_metrics import connection

if TYPE_CHECKING:
    import pytest

    from tests.instrumentation.receiver import Receiver

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "signals.md"


def blocks() -> list[str]:
    """Return the Python blocks of the page."""
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_code_of_the_page_runs_and_records_what_it_says(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSCOPE_ENDPOINT", receiver.endpoint)
    with signals_of(receiver.endpoint):
        for block in blocks():
            exec(compile(block, str(GUIDE), "exec"), {"__name__": "guide"})  # noqa: S102 - the page is ours
        assert tailscope.flush(timeout_s=10)

    told = receiver.by_name()
    assert told["predict"].attributes["eventloop.lag_ms"] > 250
    ((name, _, fields),) = told["predict"].events
    assert (name, fields["code.function.name"]) == ("eventloop.blocked", "guide.predict")
    assert told["model.load"].attributes["model.version"] == "7"


def test_every_key_and_every_metric_is_on_the_page(receiver: Receiver) -> None:
    page = GUIDE.read_text(encoding="utf-8")
    keys = {value for name, value in vars(_names).items() if name.isupper()}
    with grpc_metrics_receiver() as metrics:
        connect = connection(metrics.endpoint)
        with signals_of(receiver.endpoint, connect=connect, interval_s=0.1), tailscope.request("first"):
            sent = set(metrics.wait(1).metrics)

    def is_told(name: str) -> bool:
        prefix, _, last = name.rpartition(".")
        return f"`{name}`" in page or (f"`.{last}`" in page and prefix in page)

    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
    assert [name for name in sorted(sent) if not is_told(name)] == []
