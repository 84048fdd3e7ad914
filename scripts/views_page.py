"""Make docs/views.md: every view and macro with its columns, their types and an example that was run.

    python -m scripts.views_page

Owns the page. What it says comes from the comments of the SQL files, from docs/views.toml and from DuckDB. A
test makes the page again and compares.
"""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tailscope_analyzer import Selection
from tailscope_analyzer.commands._tables import as_table
from tailscope_collector import Collector, _sql, open_data
from tests.collector.building import MS, NEW_YEAR_NS, SpanSpec, body
from tests.collector.serving import call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_analyzer import Source

DOCS: Final = Path(__file__).parent.parent / "docs"
PAGE: Final = DOCS / "views.md"
WORDS: Final = tomllib.loads((DOCS / "views.toml").read_text(encoding="utf-8"))
SECOND: Final = 1_000_000_000

HEAD: Final = """\
# Views and macros

<!-- Made by `python -m scripts.views_page` from the SQL files, docs/views.toml and DuckDB: change those. -->

How to ask is in [sql.md](sql.md). Ids are lower-case hex text, times are UTC, and no view promises an order:
say `order by`. The examples ran on four requests of a service `gateway` that calls a service `model`.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page; it takes a collector that runs for a second or two."""
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "data")
        with Collector(data) as collector:
            _fill(collector.url)
        with_findings = open_data(data)
        with_findings.keep(Selection(service="gateway"), percentile=0.75, name="slow checkouts")  # type: ignore[attr-defined]  # a LocalSource
        try:
            return "\n".join([HEAD, *_views(with_findings), *_macros(with_findings)])
        finally:
            with_findings.close()


def _views(source: Source) -> Iterable[str]:
    for name, said in _in_order("views"):
        yield f"## {name}\n\n{_sentence('views', name)}{_notes(said)}\n"
        yield "| column | type | meaning |\n|---|---|---|"
        for column, kind, *_ in source.sql(f"describe {name}").rows:
            yield f"| {column} | {_short(kind)} | {meaning(said, column)} |"
        yield f"\n{_example(source, said)}"


def _macros(source: Source) -> Iterable[str]:
    yield "## Macros\n"
    for name, said in _in_order("macros"):
        yield f"### {name}\n\n`{said['signature']}`: {_sentence('macros', name)}{_notes(said)}\n"
        yield _example(source, said)


def meaning(said: dict[str, Any], column: str) -> str:
    """Return what a column means; raises KeyError where nobody said it."""
    own: dict[str, str] = said["columns"]
    return own[column] if column in own else str(WORDS["columns"][column])


def _in_order(kind: str) -> list[tuple[str, dict[str, Any]]]:
    entries: dict[str, dict[str, Any]] = WORDS[kind]
    return sorted(entries.items(), key=lambda entry: int(entry[1]["order"]))


def _sentence(folder: str, name: str) -> str:
    """Return the comment with which a SQL file begins, as one paragraph."""
    lines: list[str] = []
    for line in _sql.read_sql(folder, name).splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return " ".join(lines)


def _notes(said: dict[str, Any]) -> str:
    return f" {said['notes']}" if "notes" in said else ""


def _short(kind: str) -> str:
    """Return a type on one line of a table; the fields of a list of structs are listed by name."""
    return kind if len(kind) < 40 else kind.replace("STRUCT(", "STRUCT (").replace("|", "")


def _example(source: Source, said: dict[str, Any]) -> str:
    query = said["example"].strip()
    answer = as_table(source.sql(query), width=110)
    return f"```sql\n{query}\n```\n\n```text\n{answer}\n```\n"


def _fill(url: str) -> None:
    requests = [(1, 40, 22, 2), (2, 48, 27, 4), (3, 55, 31, 6), (4, 160, 95, 40)]
    for trace, whole_ms, model_ms, queue_ms in requests:
        call(f"{url}/v1/traces", body(*_request(trace, whole_ms, model_ms, queue_ms)), Content_Type=PROTOBUF)
    call(f"{url}/v1/metrics", _samples(), Content_Type=PROTOBUF)


PROTOBUF: Final = "application/x-protobuf"


def _request(trace: int, whole_ms: int, model_ms: int, queue_ms: int) -> list[SpanSpec]:
    at = NEW_YEAR_NS + trace * SECOND
    plan = {"user.plan": "free" if trace % 2 else "paid"}
    seen = {
        "http.response.status_code": 500 if trace == 4 else 200,
        "model.name": "ranker",
        "model.version": "7",
    }
    failed = 2 if trace == 4 else 0
    steps = [
        SpanSpec(
            trace, 1, 0, "POST /checkout", 2, at, whole_ms * MS, "gateway", status=failed, attributes=seen
        ),
        SpanSpec(trace, 2, 1, "preprocess", 1, at + MS, 6 * MS, "gateway"),
        SpanSpec(trace, 3, 1, "POST /predict", 3, at + 8 * MS, (model_ms + 3) * MS, "gateway"),
        SpanSpec(trace, 4, 3, "POST /predict", 2, at + 9 * MS, model_ms * MS, "model"),
        SpanSpec(trace, 5, 4, "queue", 1, at + 9 * MS, queue_ms * MS, "model"),
    ]
    run_at, run_ms = at + (9 + queue_ms) * MS, model_ms - queue_ms - 4
    steps.append(SpanSpec(trace, 6, 4, "inference", 1, run_at, run_ms * MS, "model", attributes=plan))
    cache_at = at + (whole_ms - 4) * MS
    cache = {"server.address": "redis"}
    steps.append(SpanSpec(trace, 7, 1, "SET", 3, cache_at, 2 * MS, "gateway", attributes=cache))
    return steps


def _samples() -> bytes:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for key, value in (("service.name", "model"), ("host.name", "gpu-1")):
        resource.resource.attributes.add(key=key).value.string_value = value
    metrics = resource.scope_metrics.add().metrics
    for name, unit, values in (
        ("hw.gpu.utilization", "1", (0.4, 0.9)),
        ("hw.temperature", "Cel", (61.0, 74.0)),
    ):
        gauge = metrics.add(name=name, unit=unit).gauge
        for number, value in enumerate(values):
            at = NEW_YEAR_NS + number * SECOND
            point = gauge.data_points.add(time_unix_nano=at, as_double=value)
            point.attributes.add(key="hw.id").value.string_value = "GPU-0"
    return request.SerializeToString()


if __name__ == "__main__":
    main()
