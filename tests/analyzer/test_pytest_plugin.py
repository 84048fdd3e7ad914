"""The fixture `tail_gate`, in test runs of their own: what passes, what fails and what a user reads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import tailscope
from tailscope_analyzer import InputError, SourceError, Traces
from tailscope_analyzer._baseline import Baseline, read_baseline, write_baseline
from tailscope_analyzer._gate import parse_rule
from tailscope_analyzer._pytest_gate._control import ratio_of, stretched, this_machine
from tailscope_analyzer._pytest_gate._judged import judged
from tests.analyzer.build import gc_event, span, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytest_plugins = ["pytester"]
import_module(
    "tailscope_analyzer._pytest_gate._gate"
)  # once: test runs within this one forget what they import

# A clock that stands still makes durations exact; the gate records with the real one, so it is put beneath.
SERVICE = """
import tailscope
from tailscope import _local
from tailscope.testing import Clock

CLOCK = Clock()

@tailscope.request
def predict(ms):
    with tailscope.stage("inference"):
        CLOCK.advance(ms=ms)

def load(ms, n=100):
    _local.use_clock(CLOCK)
    try:
        for number in range(n):
            predict(ms + number % 7)
    finally:
        _local.use_clock(None)
"""
TEST = """
import os
from service import load

def test_latency(tail_gate):
    with tail_gate():
        load({ms})
"""
PLUGIN = "tailscope_analyzer._pytest_gate._plugin"
HEAVY = {"tailscope", "tailscope_analyzer", "opentelemetry", "numpy", "polars", "pyarrow", "scipy", "rich"}
UPDATE = "--tailscope-update-baseline"
QUIET = ["-p", "no:cacheprovider", "-p", "no:randomly"]


def run(pytester: pytest.Pytester, ms: float, *args: str) -> pytest.RunResult:
    pytester.makepyfile(service=SERVICE)
    pytester.path.joinpath("test_it.py").write_text(TEST.format(ms=ms))
    return pytester.runpytest_inprocess(*QUIET, *args)


def test_a_regression_fails_with_the_split_of_the_difference(pytester: pytest.Pytester) -> None:
    run(pytester, 50, UPDATE).assert_outcomes(passed=1)

    found = run(pytester, 80)

    found.assert_outcomes(failed=1)
    said = found.stdout.str()
    assert (
        "test_it-test_latency: Slower: test takes 30.0 ms more per request of the same kind, mostly in infer"
        in said
    )
    assert "FAILED mean>15%: mean went from 53.0 ms to 83.0 ms" in said
    assert re.search(r"^test inference +\+30\.0 ms +100%", said, re.MULTILINE)
    assert "Traceback" not in said


def test_the_same_requests_pass_and_the_summary_says_so(pytester: pytest.Pytester) -> None:
    wrote = run(pytester, 50, UPDATE)

    found = run(pytester, 50)

    found.assert_outcomes(passed=1)
    wrote.stdout.fnmatch_lines(["*wrote *test_it-test_latency.parquet, the baseline of 100 requests"])
    found.stdout.fnmatch_lines(["*test_it-test_latency: passed p95>25%: p95 went from 56.0 ms to 56.0 ms*"])


def test_without_a_baseline_the_way_to_one_is_told(pytester: pytest.Pytester) -> None:
    found = run(pytester, 50)

    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["*There is no baseline*pytest --tailscope-update-baseline*"])


WRONG = """
from service import load

def test_rule(tail_gate):
    with tail_gate(fail_on=["p99"]):
        load(50)

def test_nothing_recorded(tail_gate):
    with tail_gate():
        pass

def test_all_warm_up(tail_gate):
    with tail_gate(warm_up=200):
        load(50)

def test_other_operation(tail_gate):
    with tail_gate(operation="other"):
        load(50)

def test_own_error(tail_gate):
    with tail_gate():
        raise KeyError("mine")

def test_twice(tail_gate):
    for _ in range(2):
        with tail_gate("x"):
            load(50)

def test_no_collector(tail_gate):
    with tail_gate(url="http://127.0.0.1:9"):
        pass

def test_warm_up(tail_gate):
    with tail_gate(warm_up=20):
        load(50)
"""


def test_what_goes_wrong_is_said_without_a_traceback_of_ours(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(service=SERVICE, test_it=WRONG)

    found = pytester.runpytest_inprocess(*QUIET, UPDATE)

    found.assert_outcomes(failed=7, passed=1)
    said = found.stdout.str()
    for expected in (
        "test_it-test_rule: Not a rule: 'p99'.",
        "test_it-test_nothing_recorded: No requests are left to compare. Recorded were 0 (operations: none)",
        "test_all_warm_up: No requests are left to compare. Recorded were 100 (operations: predict), 200 are",
        "test_it-test_other_operation: No requests are left to compare. Recorded were 100",
        "KeyError: 'mine'",
        "Two gates of this test are called 'x'.",
        "test_it-test_no_collector: Cannot reach a collector at http://127.0.0.1:9",
        "test_it-test_warm_up.parquet, the baseline of 80 requests",
    ):
        assert expected in said
    assert "_gate.py" not in said
    assert "During handling" not in said


def test_the_marker_and_the_configuration_set_what_fails(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\ntailscope_fail_on = p50>90%\ntailscope_baselines = kept\naddopts = --strict-markers\n"
    )
    run(pytester, 50, UPDATE).assert_outcomes(passed=1)
    pytester.makepyfile(
        test_it="""
        import pytest
        from service import load

        def test_latency(tail_gate):
            with tail_gate() as measured:
                load(80)
            assert measured.comparison.significant

        @pytest.mark.tail_gate(fail_on=["p50>10%"])
        def test_marked(tail_gate):
            with tail_gate("test_it-test_latency"):
                load(80)

        @pytest.mark.tail_gate(fail=["p50>10%"])
        def test_wrong(tail_gate):
            with tail_gate():
                load(80)
        """
    )

    found = pytester.runpytest_inprocess(*QUIET)

    found.assert_outcomes(passed=1, failed=2)
    assert pytester.path.joinpath("kept", "test_it-test_latency.parquet").is_file()
    found.stdout.fnmatch_lines(["*FAILED p50>10%: p50 went from 53.0 ms to 83.0 ms*", "*knows no 'fail'*"])


def test_a_run_without_a_gate_imports_nothing_heavy(tmp_path: Path) -> None:
    file = tmp_path / "test_nothing.py"
    file.write_text("import sys\ndef test_it():\n    print('MODULES', *sorted(sys.modules))\n")
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", PLUGIN, str(file)]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    (line,) = (line for line in done.stdout.splitlines() if line.startswith("MODULES"))
    loaded = {name for name in line.split()[1:] if name.partition(".")[0] in HEAVY}
    assert loaded == {"tailscope_analyzer", "tailscope_analyzer._pytest_gate", PLUGIN}


def requests(ms: float, n: int = 400, *, seed: int = 1) -> pa.Table:
    took = ms * np.random.default_rng(seed).lognormal(0, 0.1, n)
    return table(
        *(span("predict", 100 * at, 100 * at + one, trace=f"{at}") for at, one in enumerate(took.tolist()))
    )


def decided(
    baseline: Baseline, ms: float, *, control_ms: Sequence[float] = (), any_machine: bool = False
) -> str:
    rules = [parse_rule("mean>10%")]
    traces = Traces.from_spans(requests(ms, seed=2))
    return judged(
        traces, baseline, rules, machine={"cores": "2"}, control_ms=control_ms, any_machine=any_machine
    ).failure


def test_a_baseline_of_another_machine_is_not_judged_unless_told_to() -> None:
    other = Baseline(requests(50), {"cores": "64"})

    refused = decided(other, 50)

    assert refused.startswith("Not judged. The baseline is of another machine (cores 64, here 2).")
    assert "--tailscope-any-machine" in refused
    assert decided(other, 50, any_machine=True) == ""
    assert decided(Baseline(requests(50), {"cores": "2"}), 50) == ""


def test_a_control_tells_a_slower_machine_from_slower_requests() -> None:
    """Everything takes twice as long here; then the requests take half as long again on top."""
    baseline = Baseline(requests(50), {"cores": "64"}, (10.0, 10.1) * 20)

    assert decided(baseline, 100, control_ms=(20.0, 20.2) * 20) == ""
    slower = decided(baseline, 150, control_ms=(20.0, 20.2) * 20)
    assert slower.startswith("The control takes 2.00 times as long as it did (95 % interval 2.00 to 2.00)")
    assert "FAILED mean>10%" in slower


def test_a_control_that_scatters_makes_the_gate_careful() -> None:
    ratio, low, high = ratio_of([10.0, 12.0, 8.0, 10.0], [20.0, 28.0, 14.0, 20.0])

    assert low < 1.5 < ratio < 2.5 < high
    assert ratio_of([10.0] * 5, [15.0] * 5) == pytest.approx((1.5, 1.5, 1.5))


def test_stretched_spans_take_longer_and_still_fit_together() -> None:
    whole = table(
        span("a", 0, 10, events=[gc_event(4, 1)]),
        span("b", 2, 4, "a"),
        span("c", 4, 9, "a"),
        span("d", 5, 7, trace="t2"),
    )

    twice = stretched(whole, 2.0)

    start, duration = twice["start_unix_nano"].to_numpy(), twice["duration_ns"].to_numpy()
    assert (duration / 1e6).tolist() == [20.0, 4.0, 10.0, 4.0]
    assert ((start - start[0]) / 1e6).tolist() == [0.0, 4.0, 8.0, 5.0], "the other trace begins when it did"
    (events, *_) = twice["events"].to_pylist()
    assert events is not None
    assert events[0]["time_unix_nano"] - start[0] == 8_000_000
    assert twice.schema == whole.schema
    assert stretched(whole, 1.0) == whole


def test_a_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    path, kept = tmp_path / "new" / "x.parquet", Baseline(requests(50, 5), this_machine(), (1.0, 2.5))

    write_baseline(path, kept)

    found = read_baseline(path)
    assert found.spans.equals(kept.spans)
    assert (found.machine, found.control_ms) == (kept.machine, kept.control_ms)
    assert [one.name for one in path.parent.iterdir()] == ["x.parquet"]


def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"no parquet")
    with pytest.raises(SourceError, match=r"x\.parquet cannot be read as Parquet"):
        read_baseline(path)
    write_baseline(path, Baseline(pa.table({"a": [1]})))
    with pytest.raises(InputError, match="holds no spans: it has no column trace_id"):
        read_baseline(path)


def test_a_service_under_tailscope_run_does_not_make_pytest_warn() -> None:
    """Pytest warns of packages with a plugin that were imported before it, unless they say this word."""
    assert "PYTEST_DONT_REWRITE" in str(tailscope.__doc__)
