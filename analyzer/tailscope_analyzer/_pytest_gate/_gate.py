"""What the fixture gives: blocks of a test whose requests are measured and compared.

Owns the options, the names and files of baselines, and where spans come from: this process, or a collector
that the service under test sends to.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import polars as pl
import pytest

from tailscope_analyzer._baseline import SUFFIX, Baseline, read_baseline, write_baseline
from tailscope_analyzer._errors import AnalyzerError, InputError
from tailscope_analyzer._gate import parse_rule
from tailscope_analyzer._pytest_gate._collected import collected
from tailscope_analyzer._pytest_gate._control import this_machine, time_control
from tailscope_analyzer._pytest_gate._judged import judged
from tailscope_analyzer._pytest_gate._recorded import table_of
from tailscope_analyzer._source import Selection
from tailscope_analyzer._traces import Traces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from tailscope.testing import Recording
    from tailscope_analyzer._compare import Comparison


@dataclass(frozen=True, slots=True)
class Options:
    """Hold what a block is asked for."""

    fail_on: Sequence[str] = ()
    """Rules as in `tailscope compare --fail-on`; those of the configuration without any."""
    warm_up: int = 0
    """So many first requests do not count."""
    control: Callable[[], object] | None = None
    """Work that does not change: what it takes tells a slower machine from slower requests."""
    url: str | None = None
    """A collector that the service under test sends to; without one this process is recorded."""
    service: str | None = None
    """Of the entry span; requests of others do not count."""
    operation: str | None = None


class Asked(TypedDict, total=False):
    """The fields of `Options` as keywords."""

    fail_on: Sequence[str]
    warm_up: int
    control: Callable[[], object]
    url: str
    service: str
    operation: str


@dataclass(repr=False)
class TailGate:
    """Call it for a block whose requests are measured: `with tail_gate("predict", warm_up=20): ...`."""

    folder: Path
    test: str
    rules: tuple[str, ...]
    defaults: Mapping[str, Any]
    update: bool
    any_machine: bool
    say: Callable[[str], None]
    _used: set[str] = field(default_factory=set[str])

    def __call__(self, name: str | None = None, **options: Unpack[Asked]) -> Measured:
        """Return a context manager; when its block ends the requests are compared, or kept as the baseline.

        `name` is that of the baseline, by default that of the test; the options are the fields of `Options`.
        """
        known = {one.name for one in fields(Options)}
        unknown = [one for one in self.defaults if one not in known]
        if unknown:
            pytest.fail(
                f"The marker tail_gate knows no {unknown[0]!r}, only {', '.join(sorted(known))}.", False
            )
        slug = _slug(name or self.test.rpartition("/")[2])
        if slug in self._used:
            pytest.fail(f"Two gates of this test are called {slug!r}. Give each a name of its own.", False)
        self._used.add(slug)
        return Measured(self, slug, replace(Options(**self.defaults), **options))


class Measured:
    """A block whose requests are measured; afterwards it holds the comparison."""

    def __init__(self, gate: TailGate, name: str, options: Options) -> None:
        self.name = name
        self.comparison: Comparison | None = None
        """None until the block has ended, and where nothing was compared."""
        self.path: Path = gate.folder / f"{name}{SUFFIX}"
        """The file of the baseline."""
        self._gate = gate
        self._options = options
        self._stack = ExitStack()
        self._recording: Recording | None = None
        self._control_ms: list[float] = []
        self._since = datetime.now(UTC)

    def __enter__(self) -> Self:
        """Begin to record."""
        texts = self._options.fail_on or self._gate.rules
        try:
            self._rules = [parse_rule(text) for text in ([texts] if isinstance(texts, str) else texts)]
        except InputError as error:
            problem = str(error)
        else:
            problem = ""
        if problem:  # outside of the handler, or pytest shows both
            pytest.fail(f"{self.name}: {problem}", pytrace=False)
        self._time_control()
        if self._options.url is None:
            from tailscope.testing import recording

            self._recording = self._stack.enter_context(recording(seed=None))
        self._since = datetime.now(UTC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Compare and judge, unless the block failed by itself."""
        __tracebackhide__ = True
        until = datetime.now(UTC)
        with self._stack:
            spans = self._recording.all() if self._recording is not None and error is None else []
        if error is not None:
            return
        self._time_control()
        try:
            if self._options.url is None:
                traces = Traces.from_spans(table_of(spans))
            else:
                options = self._options
                selection = Selection(options.service, options.operation, None, self._since, until)
                traces = collected(self._options.url, selection)
            failure = self._judge(self._chosen(traces))
        except AnalyzerError as problem:
            failure = str(problem)
        if failure:
            pytest.fail(f"{self.name}: {failure}", pytrace=False)

    def _time_control(self) -> None:
        if self._options.control is not None:
            self._control_ms += time_control(self._options.control)

    def _chosen(self, traces: Traces) -> Traces:
        """Leave out warm-up and what is not asked for; raises InputError where nothing is left."""
        options, requests = self._options, traces.requests
        for column, value in (("service", options.service), ("operation", options.operation)):
            requests = requests if value is None else requests.filter(pl.col(column) == value)
        requests = requests.slice(options.warm_up)
        if len(requests) == 0:
            names = ", ".join(sorted({str(one) for one in traces.requests["operation"]})) or "none"
            raise InputError(
                f"No requests are left to compare. Recorded were {len(traces)} (operations: {names}), "
                f"{options.warm_up} are for warming up. A request is a span without a parent."
            )
        if len(requests) == len(traces):
            return traces
        return Traces.from_spans(traces.spans_of(requests["trace_id"]))

    def _judge(self, traces: Traces) -> str:
        """Keep the requests as the baseline, or judge them; returns what failed."""
        machine, say = this_machine(), self._gate.say
        if self._gate.update:
            write_baseline(self.path, Baseline(traces.spans, machine, tuple(self._control_ms)))
            say(f"{self.name}: wrote {self.path}, the baseline of {len(traces):,} requests")
            return ""
        if not self.path.is_file():
            return (
                f"There is no baseline, {self.path}. Write it, on the commit before the change, with: "
                "pytest --tailscope-update-baseline"
            )
        found = judged(
            traces,
            read_baseline(self.path),
            self._rules,
            machine=machine,
            control_ms=self._control_ms,
            any_machine=self._gate.any_machine,
        )
        self.comparison = found.comparison
        for line in found.lines:
            say(f"{self.name}: {line}")
        return found.failure


def _slug(name: str) -> str:
    """Return a name that is a file's on every system."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name.replace(".py::", "-")).strip("-.") or "gate"
