"""The demo's table: what it says of a fault that shows and, as plainly, of one that does not."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from tailscope.conventions import CATEGORIES, STAGES
from tailscope.demo import _show
from tailscope.demo._arrivals import Shares
from tailscope.demo._faults import Rows, planted_faults
from tailscope.demo._measure import Measured

if TYPE_CHECKING:
    from tailscope.demo._wire import Calibration

CALIBRATION: Calibration = {"document_ms": 0.02, "inference_ms": 2.5, "gc_pause_ms": 150.0}
FAULTS = planted_faults(CALIBRATION, shares=Shares())
REPORT: dict[str, Any] = {"percentile": 0.95, "latency_ms": {"p50": 20.0, "p95": 200.0, "p99": 300.0}}
END: dict[str, Any] = {"answered": 400, "failed": 1, "p50_ms": 22.0, "p95_ms": 210.0, "p99_ms": 310.0}


def measured(difference_ms: float, affected: int = 8) -> list[Measured]:
    return [Measured(fault, affected, 392, difference_ms, 12.0) for fault in FAULTS]


def test_a_fault_that_shows_stands_with_its_milliseconds(capsys: pytest.CaptureFixture[str]) -> None:
    _show.planted(measured(200.0), REPORT, END)

    said = capsys.readouterr().out
    assert said.count("+200 ms") == len(FAULTS)
    assert "Every planted fault shows" in said
    assert "of p95" in said
    assert "400 requests answered, 1 failed" in said


def test_a_fault_that_does_not_show_is_said_not_to(capsys: pytest.CaptureFixture[str]) -> None:
    _show.planted(measured(3.0), REPORT, END)

    said = capsys.readouterr().out
    assert "Every planted fault shows" not in said
    names = ", ".join(fault.name for fault in FAULTS)
    assert f"Not seen in this run: {names}." in said.replace("\n", " ")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_that_nobody_met_does_not_show(fault: object) -> None:
    (found,) = [one for one in measured(500.0, affected=0) if one.fault is fault]

    assert not found.shows


def test_faults_are_sized_by_what_the_instance_measured_of_itself() -> None:
    sizes = {fault.name: round(fault.planted_ms, 1) for fault in FAULTS}

    assert sizes == {
        "slow auth dependency": 312.7,
        "batch window": 250.0,
        "GC pauses": 150.0,
        "slow instance": 2.5 * 63,
        "big payloads": 0.02 * 6500,
    }


def test_faults_name_rows_that_the_ledger_can_have() -> None:
    for fault in FAULTS:
        assert set(fault.rows.stage) <= set(STAGES)
        assert set(fault.rows.category) <= set(CATEGORIES)


def test_rows_are_the_same_set_in_sql_and_in_the_report() -> None:
    rows = Rows(service=("ranker",), stage=("preprocess", "serialize"))
    row = {"service": "ranker", "stage": "serialize", "category": "self", "excess_ms": 3.0}

    assert rows.sql() == "service in ('ranker') and stage in ('preprocess', 'serialize')"
    assert rows.hold(row)
    assert not rows.hold(row | {"stage": "queue"})
    assert not rows.hold(row | {"service": "accounts"})
    assert str(rows) == "ranker preprocess + serialize"


def test_a_fault_is_a_value() -> None:
    assert all(dataclasses.is_dataclass(fault) for fault in FAULTS)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
