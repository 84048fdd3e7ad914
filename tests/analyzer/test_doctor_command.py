"""`tailscope doctor` over a real store: what was planted is found, and nothing else is."""

from __future__ import annotations

import inspect
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tailscope_analyzer import _doctor as checks
from tailscope_analyzer.commands import doctor
from tailscope_collector import Collector
from tests.collector.building import MS, Bench, SpanSpec, export_request
from tests.collector.serving import post_protobuf

START = datetime.now(UTC) - timedelta(minutes=5)
START_NS = int(START.timestamp()) * 1_000_000_000


def healthy(count: int = 400, service: str = "ranker", first: int = 1) -> list[SpanSpec]:
    """Return requests of 10 ms, 9 of them in stages."""
    found: list[SpanSpec] = []
    for number in range(first, first + count):
        start_ns = START_NS + number * 100 * MS
        found.append(
            SpanSpec(
                trace=number, span=1, kind=2, name="predict", service=service, start_ns=start_ns,
                duration_ns=10 * MS,
            )
        )  # fmt: skip
        for at, stage, length in ((0, "preprocess", 2), (2, "inference", 7)):
            found.append(
                SpanSpec(
                    trace=number, span=2 + at, parent=1, name=stage, service=service,
                    start_ns=start_ns + at * MS, duration_ns=length * MS,
                    attributes={"tailscope.stage": stage},
                )
            )  # fmt: skip
    return found


def sent(*specs: SpanSpec, **resource: str) -> bytes:
    """Return a request in which each resource names an instance."""
    request = export_request(*specs)
    for spans in request.resource_spans:
        for key, value in {"service.instance.id": "one", "host.name": "h", "process.pid": "1"}.items():
            spans.resource.attributes.add(key=key).value.string_value = resource.get(
                key.replace(".", "_"), value
            )
    return request.SerializeToString()


def examined(path: Path, capsys: pytest.CaptureFixture[str], *bodies: bytes) -> tuple[int, dict[str, Any]]:
    """Store what was sent, run the command over the directory, and return its code and its JSON."""
    with Bench(path) as bench:
        bench.ingest(*bodies)
        bench.store.close()
    code = doctor.main(["--data", str(path), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def told(answer: dict[str, Any], verdict: str) -> dict[tuple[str, str], str]:
    return {
        (check["check"], check["subject"]): check["figure"]
        for check in answer["checks"]
        if check["verdict"] == verdict
    }


def test_a_healthy_service_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = examined(tmp_path / "data", capsys, sent(*healthy()))

    assert (code, answer["verdict"], answer["version"]) == (0, "ok", 1)
    assert {check["check"] for check in answer["checks"]} == {
        "arrival", "stages", "complete", "coverage", "orphans", "dropped", "report",
    }  # fmt: skip
    assert told(answer, "ok")["stages", "ranker"] == "100.0% of 400 requests have stages"
    assert told(answer, "ok")["coverage", "ranker"] == "10.0% of its own time is in no stage"
    assert told(answer, "ok")["arrival", "ranker"].startswith("1,200 spans, 30.1/s, 1 instance, last seen")


def test_requests_without_stages_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = [
        SpanSpec(trace=9000 + n, span=1, kind=2, name="GET /x", service="bare", start_ns=START_NS + n * MS)
        for n in range(20)
    ]
    code, answer = examined(tmp_path / "data", capsys, sent(*healthy(), *bare))

    assert (code, answer["verdict"]) == (0, "warn")
    assert told(answer, "warn") == {("stages", "bare"): "0.0% of 20 requests have stages"}


def test_drops_are_the_largest_count_of_each_instance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def request(trace: int, spans: int, requests: int) -> SpanSpec:
        counts = {"tailscope.dropped.spans": spans, "tailscope.dropped.requests": requests}
        return SpanSpec(
            trace=trace, kind=2, name="predict", service="ranker", start_ns=START_NS + trace * MS,
            attributes={"tailscope.stage": "inference", **counts},
        )  # fmt: skip

    code, answer = examined(
        tmp_path / "data",
        capsys,
        sent(*healthy(), request(7001, 10, 2), request(7002, 30, 6)),
        sent(request(7003, 5, 1), service_instance_id="two", process_pid="2"),
    )

    assert code == 1
    assert told(answer, "bad") == {("dropped", "ranker"): "35 spans and 7 requests dropped (2.83%)"}


def test_a_missing_parent_is_an_orphan_and_its_request_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = [
        SpanSpec(
            trace=8000 + n, span=5, parent=9, name="inference", service="ranker", kind=2,
            start_ns=START_NS + n * MS, attributes={"tailscope.stage": "inference"},
        )
        for n in range(40)
    ]  # fmt: skip
    code, answer = examined(tmp_path / "data", capsys, sent(*healthy(), *lost))

    assert code == 1
    assert told(answer, "bad")["complete", "ranker"] == "9.09% of 440 requests are incomplete"
    assert told(answer, "warn")["orphans", "ranker"] == "40 of 1,240 spans name a parent that never came"


def test_a_callee_whose_clock_is_behind_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[SpanSpec] = []
    for n in range(100):
        start_ns = START_NS + n * 50 * MS
        calls.append(
            SpanSpec(trace=6000 + n, span=1, kind=3, name="POST", service="gateway", start_ns=start_ns,
                     duration_ns=10 * MS)
        )  # fmt: skip
        calls.append(
            SpanSpec(trace=6000 + n, span=2, parent=1, kind=2, name="predict", service="model",
                     start_ns=start_ns + 2 * MS - 20 * MS, duration_ns=6 * MS,
                     attributes={"tailscope.stage": "inference"})
        )  # fmt: skip
    _, answer = examined(tmp_path / "data", capsys, sent(*calls))

    figure = told(answer, "bad")["clock", "gateway > model"]
    assert figure.startswith("in 100 of 100 calls the callee starts before its caller")
    assert figure.endswith("about -20.0 ms off")


def test_two_processes_with_one_instance_id_are_found_and_a_restart_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, later = healthy(10, "restarted"), healthy(10, "twins", first=20)
    after = [
        SpanSpec(trace=5000 + n, kind=2, service="restarted", start_ns=START_NS + (60 + n) * 1000 * MS,
                 attributes={"tailscope.stage": "inference"})
        for n in range(10)
    ]  # fmt: skip
    beside = [
        SpanSpec(trace=5100 + n, kind=2, service="twins", start_ns=START_NS + (20 + n) * 100 * MS,
                 attributes={"tailscope.stage": "inference"})
        for n in range(10)
    ]  # fmt: skip
    _, answer = examined(
        tmp_path / "data", capsys, sent(*first, *later), sent(*after, *beside, process_pid="2")
    )

    assert told(answer, "bad") == {("instance", "twins"): "2 processes send as 'one' at the same time"}


def test_a_running_collector_is_examined_over_http(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Collector(tmp_path / "data") as collector:
        assert post_protobuf(collector.url, sent(*healthy(20))).status == 200

        assert doctor.main(["--url", collector.url, "--format", "json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert (answer["source"], answer["verdict"]) == (collector.url, "warn")
    assert told(answer, "warn")["report", ""].startswith("too few requests: 20 of at least 300")


def test_a_running_collector_that_has_gone_silent_is_a_warning_and_a_directory_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = SpanSpec(kind=2, service="old", start_ns=START_NS - 3600 * 1000 * MS)
    with Collector(tmp_path / "data") as collector:
        assert post_protobuf(collector.url, sent(old)).status == 200
        doctor.main(["--url", collector.url, "--format", "json"])
        live = json.loads(capsys.readouterr().out)
        until = (START + timedelta(hours=1)).isoformat()
        doctor.main(["--url", collector.url, "--since", "1d", "--until", until, "--format", "json"])
        past = json.loads(capsys.readouterr().out)
    doctor.main(["--data", str(tmp_path / "data"), "--format", "json"])
    stored = json.loads(capsys.readouterr().out)

    assert told(live, "warn")["arrival", ""] == "the newest span of all services came 1 h ago"
    assert ("arrival", "") not in told(past, "warn") | told(stored, "warn")


def test_an_empty_store_says_what_to_do_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = examined(tmp_path / "data", capsys)

    assert code == 1
    (check,) = answer["checks"]
    assert (check["check"], check["figure"]) == ("arrival", "no span has ever arrived")
    assert "tailscope.stats()" in check["todo"]


def test_an_old_window_is_the_last_hour_with_data_and_since_moves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [
        SpanSpec(
            trace=n, kind=2, service="old", start_ns=n * 1000 * MS, attributes={"tailscope.stage": "auth"}
        )
        for n in range(1, 9)
    ]
    code, answer = examined(tmp_path / "data", capsys, sent(*old))
    assert code == 0
    assert told(answer, "ok")["arrival", "old"].endswith("d ago")

    assert doctor.main(["--data", str(tmp_path / "data"), "--since", "1h"]) == 1
    assert "the newest is of 1970-01-01 00:00:08 UTC" in " ".join(capsys.readouterr().out.split())


def test_the_text_has_a_line_for_each_check_in_any_width(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    with Bench(path) as bench:
        bench.ingest(sent(*healthy()))
        bench.store.close()
    monkeypatch.setenv("COLUMNS", "60")

    assert doctor.main(["--data", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith(str(path))
    assert out.startswith("ok (7 ok, 0 warn, 0 bad): ")
    assert "\nok  stages" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines()[1:])) <= 60


def test_the_text_begins_with_what_is_worst(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = SpanSpec(trace=9000, kind=2, name="GET /x", service="bare", start_ns=START_NS)
    with Bench(tmp_path / "data") as bench:
        bench.ingest(sent(*healthy(), bare))
        bench.store.close()

    assert doctor.main(["--data", str(tmp_path / "data")]) == 0
    verdicts = re.findall(r"^(bad|warn|ok) ", capsys.readouterr().out, re.MULTILINE)[1:]  # below the heading
    assert verdicts == sorted(verdicts, key=["bad", "warn", "ok"].index)
    assert {"warn", "ok"} <= set(verdicts)


@pytest.mark.parametrize(
    "wrong", [["--since", "yesterday-ish"], ["--since", "1h", "--until", "2h"], ["--url", "ftp://x"]]
)
def test_wrong_usage_is_two(wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Bench(tmp_path / "data") as bench:
        bench.store.close()
    where = [] if "--url" in wrong else ["--data", str(tmp_path / "data")]

    assert doctor.main([*where, *wrong]) == 2
    assert capsys.readouterr().out == ""


def test_a_collector_that_is_not_there_is_one_line_and_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--url", "http://127.0.0.1:9"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_the_guide_explains_every_check() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    source = inspect.getsource(checks)
    names = set(re.findall(r'Check\(\s*"(\w+)"', source))

    assert len(names) >= 11
    assert {name for name in names if f"| `{name}` |" not in guide} == set()
