"""`tailscope import`: files in, counts and reasons out."""

from __future__ import annotations

import gzip
import io
import json
import re
import socket
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard

from tailscope_collector import Collector, Settings, open_data
from tailscope_collector._decoders import load_decoder
from tailscope_collector._files._trace_files import Piece, Reading, UnreadableFileError, pieces
from tailscope_collector.commands import import_files
from tests.collector.building import SpanSpec, body
from tests.collector.serving import ask_rows
from tests.shared import CHECKOUT, shared_file

if TYPE_CHECKING:
    from tests.collector.building import Bench


DOCUMENT = (CHECKOUT / "docs" / "import.md").read_text()


def request_line(span: int, name: str = "op") -> str:
    span_tree = {"traceId": f"{1:032x}", "spanId": f"{span:016x}", "name": name, "startTimeUnixNano": "5"}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span_tree]}]}]})


def read(file: Path) -> list[Piece]:
    return [*pieces(str(file), Reading(load_decoder()))]


def run(tmp_path: Path, *files: object) -> int:
    return import_files.main([*map(str, files), "--data", str(tmp_path / "data")])


def stored(tmp_path: Path) -> int:
    source = open_data(tmp_path / "data")
    try:
        return int(source.sql("select count(*) from spans").rows[0][0])
    finally:
        source.close()


def behind_length(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def behind_varint(message: bytes) -> bytes:
    assert len(message) < 2**14
    return bytes([len(message) & 0x7F | 0x80, len(message) >> 7]) + message


@pytest.mark.parametrize(
    "name",
    [
        "pretty.json",
        "one.json",
        "answer.json",
        "lines.jsonl",
        "lines.jsonl.gz",
        "request.pb",
        "request.pb.gz",
        "exporter.pb",
        "exporter.zstd",
        "delimited.pb",
    ],
)
def test_every_form_of_otlp_is_read(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    content = {
        "pretty.json": json.dumps(json.loads(request_line(1)), indent=2).encode(),
        "one.json": b"\xef\xbb\xbf" + request_line(1).encode(),
        "lines.jsonl": f"{request_line(1)}\n\n{request_line(2)}\n".encode(),
        "answer.json": b'{"result": ' + request_line(1).encode() + b"}",
        "request.pb": body(SpanSpec(span=1), SpanSpec(span=2)),
        "exporter.pb": behind_length(body(SpanSpec(span=1))) + behind_length(body(SpanSpec(span=2))),
        "exporter.zstd": b"".join(
            behind_length(zstandard.compress(request_line(span).encode())) for span in (1, 2)
        ),
        "delimited.pb": behind_varint(body(SpanSpec(span=1))) + behind_varint(body(SpanSpec(span=2))),
    }[name.removesuffix(".gz")]
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    assert run(tmp_path, file) == 0

    assert stored(tmp_path) == (1 if name.endswith(".json") else 2)


def test_stdin_is_a_file_called_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(request_line(1).encode())))

    assert run(tmp_path, "-") == 0
    assert stored(tmp_path) == 1


def test_a_bad_line_does_not_lose_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mixed.jsonl"
    bad_id = request_line(9).replace(f"{1:032x}", "abc")
    file.write_text("\n".join(["{half", request_line(1), '{"spans": 1}', bad_id, request_line(2)]))

    assert run(tmp_path, file) == 1

    said = capsys.readouterr().err
    assert stored(tmp_path) == 2
    assert f"{file}, line 1: The body is not JSON" in said
    assert f"{file}, line 3: No spans were found. Unknown keys were passed over: $.spans" in said
    assert f"{file}, line 4: 1 spans rejected: trace id is not 16 bytes" in said
    assert (
        f"Imported 2 spans in 2 export requests of 1 file into {tmp_path / 'data'}; "
        "refused 2 requests, 1 span."
    ) in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"TIMESTAMP,Tokens\n1,2\n", "is a table, not a trace (its first line: 'TIMESTAMP,Tokens')"),
        (b"hello\n", "is neither OTLP JSON nor an OTLP protobuf request, nor another format that is read"),
        (b"{ nothing", "is not JSON"),
        (b"\x1f\x8bnot gzip", "is not whole gzip"),
        (b"\xff\xff\xff", "neither OTLP JSON nor an OTLP protobuf request"),
        (b'[{"a": 1}]', "is a JSON list of nothing that is known"),
        (b'{"spans": 1}', "No spans were found. Unknown keys were passed over: $.spans"),
        (b'{"resourceSpans": 1}', "$.resourceSpans is a number"),
        (b"PAR1\x00", "is a Parquet file"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_what_is_no_trace_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)

    assert run(tmp_path, file) == 1
    assert f"{file}: " in (err := capsys.readouterr().err)
    assert said in err


def test_what_was_imported_is_said_in_spans_and_where_it_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "request.pb"
    file.write_bytes(body(SpanSpec(span=1), SpanSpec(span=2), SpanSpec(span=3)))

    assert run(tmp_path, file, file) == 0
    said = capsys.readouterr().err
    assert (
        f"Imported 6 spans in 2 export requests of 2 files into {tmp_path / 'data'}, "
        "where 3 of them stood already."
    ) in said

    with Collector(tmp_path / "data") as collector:
        assert import_files.main([str(file), "--url", collector.url]) == 0
        assert (
            f"Imported 3 spans in 1 export request of 1 file into {collector.url}." in capsys.readouterr().err
        )


def test_a_missing_file_and_a_directory_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, tmp_path / "nowhere", tmp_path) == 1

    said = capsys.readouterr().err
    assert "No such file or directory" in said
    assert "is a directory; name its files" in said


def test_a_held_directory_is_reached_through_its_collector(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(request_line(span) for span in range(1, 101)))
    with Collector(tmp_path / "data") as collector:
        assert run(tmp_path, file) == 0
        assert import_files.main([str(file), "--url", collector.url]) == 0

        assert ask_rows(collector.url, "select count(*) from spans") == [[100]]


def test_no_collector_at_the_url_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.json"
    file.write_text(request_line(1))

    assert import_files.main([str(file), "--url", "http://127.0.0.1:9"]) == 1
    assert "no collector answers at http://127.0.0.1:9" in capsys.readouterr().err
    assert import_files.main([str(file), "--url", "nonsense"]) == 1


@pytest.mark.parametrize(
    "reply", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", b""]
)
def test_a_server_that_is_no_collector_loses_nothing_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reply: bytes
) -> None:
    file = tmp_path / "one.json"
    file.write_text(request_line(1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=answer_once, args=(server, reply))
        answering.start()

        assert import_files.main([str(file), "--url", f"http://127.0.0.1:{server.getsockname()[1]}"]) == 1

        answering.join()
    said = capsys.readouterr().err
    assert "no collector answers at" in said
    assert "Imported 0 spans" in said


def answer_once(server: socket.socket, reply: bytes) -> None:
    peer, _ = server.accept()
    with peer:
        peer.recv(65_536)
        peer.sendall(reply)


def test_a_url_whose_port_is_no_number_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.json"
    file.write_text(request_line(1))

    assert import_files.main([str(file), "--url", "http://127.0.0.1:abc"]) == 1
    assert "nonnumeric port" in capsys.readouterr().err


def indexed() -> list[tuple[str, str, int | None]]:
    """Return (file, format, spans) of every trace that the shared folder's index names."""
    lines = shared_file("traces/index.tsv").read_text().splitlines()
    rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=False)) for line in lines[1:]]
    return [
        (row["file"], row["format"], int(row["spans"].split()[0]) if row["spans"] else None) for row in rows
    ]


# Where the index counts something else than what can be stored.
SPANS = {
    "otlp_duckdbotlp_malformed.jsonl": 0,  # its only span has ids of three digits
    "chrome_viztracer_async_simple.json": 657,  # threads without anything around them: a root is made
    "triton_doc_trace_sample.json": 8,
    "otlp_duckdbotlp_traces.pb": 1,
    "otlp_duckdbotlp_otap_traces_initial.otlp": 1,
}
FORMS = {
    "otlp-json": "OTLP JSON",
    "otlp-jsonl": "OTLP JSON",
    "protobuf": "OTLP protobuf",
    "zipkin-v2-json": "Zipkin v2 JSON",
    "jaeger-json": "Jaeger JSON",
    "chrome-trace": "Chrome trace",
    "triton-trace-json": "Triton trace JSON",
}
REFUSED = {
    "otlp_duckdbotlp_multifile_malformed_traces.jsonl": "is not JSON",
    "workload_azure_llm_2023_code.csv": "is a table, not a trace",
    "workload_azure_llm_2023_conv.csv": "is a table, not a trace",
}


def test_every_file_of_the_shared_folder_has_the_spans_that_its_index_names(bench: Bench) -> None:
    for name, form, spans in indexed():
        file = shared_file(f"traces/{name}")
        if "ns_resolution" in name:
            continue  # takes a while, and has a test of its own
        if name in REFUSED:
            with pytest.raises(UnreadableFileError, match=REFUSED[name]):
                read(file)
            continue
        found = read(file)
        bodies = [piece.body for piece in found if piece.body]
        accepted = sum(bench.read(*bodies).accepted) if bodies else 0

        assert accepted == SPANS.get(name, spans), name
        assert {piece.form for piece in found if piece.spans} == ({FORMS[form]} if found else set()), name
        assert not sum(piece.refused for piece in found), name


def test_every_file_of_the_shared_folder_is_imported_or_refused_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [shared_file(f"traces/{name}") for name, _, _ in indexed() if not name.startswith("chrome_hta")]

    code = run(tmp_path, *files)

    said = capsys.readouterr().err
    refusals, _, _ = said.partition(f"{files[0]}: ")
    refused = {Path(line.partition(":")[0].partition(",")[0]).name for line in refusals.split("\n") if line}
    assert code == 1
    assert refused == {*REFUSED, "otlp_duckdbotlp_malformed.jsonl"}
    assert f"{shared_file('traces/zipkin_yelp.json')}: Zipkin v2 JSON, 16 spans" in said
    assert f"{shared_file('traces/jaeger_crisp_15.json')}: Jaeger JSON, 7 spans" in said


def test_what_was_recognised_is_said_per_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zipkin, chrome = tmp_path / "a", tmp_path / "b"
    zipkin.write_text(json.dumps([{"traceId": "1", "id": "2"}, {"traceId": "1"}]))
    chrome.write_text(json.dumps([{"ph": "X", "ts": 1, "dur": 1, "name": "f"}, {"ph": "C"}]))

    assert run(tmp_path, zipkin, chrome) == 1

    said = capsys.readouterr().err
    assert f"{zipkin}, [1]: id is null; a hex id is expected" in said
    assert f"{zipkin}: Zipkin v2 JSON, 1 span\n" in said
    assert f"{chrome}: Chrome trace, 1 span; passed over what is no span: 1 of phase 'C'\n" in said
    assert "Imported 2 spans in 2 export requests of 2 files into" in said
    assert "; refused 1 span." in said


def test_lines_may_each_be_of_another_format_and_neighbours_are_sent_together(tmp_path: Path) -> None:
    file = tmp_path / "mixed"
    zipkin = json.dumps([{"traceId": "1", "id": "2"}])
    jaeger = json.dumps({"traceID": "1", "spanID": "3", "process": {"serviceName": "s"}})
    lines = [request_line(1), "", request_line(2), zipkin, jaeger, "[1]", request_line(3)]
    file.write_text("\n".join(lines))

    found = [(piece.place, piece.form, piece.spans) for piece in read(file) if piece.body]

    assert found == [
        ("lines 1-3", "OTLP JSON", 2),
        ("line 4", "Zipkin v2 JSON", 1),
        ("line 5", "Jaeger JSON", 1),
        ("line 7", "OTLP JSON", 1),
    ]
    assert [piece.failure for piece in read(file) if piece.failure] == [
        "is a JSON list of nothing that is known"
    ]


def test_lines_are_read_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    with file.open("w") as out:
        for span in range(1, 2_001):
            out.write(request_line(span, name="x" * 5_000) + "\n")
    reading = Reading(load_decoder())
    tracemalloc.start()

    spans = sum(piece.spans for piece in pieces(str(file), reading))

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert spans == 2_000
    assert file.stat().st_size > 10_000_000
    assert peak_bytes < 5_000_000


def test_of_a_file_that_ends_inside_its_gzip_the_lines_before_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cut.jsonl.gz"
    whole = gzip.compress("\n".join(request_line(span) for span in range(1, 20_000)).encode())
    file.write_bytes(whole[: len(whole) // 2])

    assert run(tmp_path, file) == 1

    assert f"{file}: is not whole gzip" in capsys.readouterr().err
    assert stored(tmp_path) > 5_000


def test_a_request_over_the_limit_of_a_collector_is_sent_in_parts(tmp_path: Path) -> None:
    file = tmp_path / "large.pb"
    file.write_bytes(
        body(*(SpanSpec(span=span, attributes={"text": "x" * 2_000}) for span in range(1, 6_001)))
    )
    with Collector(tmp_path / "data", settings=Settings(max_request_mb=10)) as collector:
        assert file.stat().st_size > 10 * 2**20

        assert import_files.main([str(file), "--url", collector.url]) == 0

        assert ask_rows(collector.url, "select count(*), count(distinct service) from spans") == [[6_000, 1]]


@pytest.mark.parametrize("name", ["A00", "A03", "A10", "A11"])
def test_the_percentiles_of_a_real_mystery_are_the_known_ones(tmp_path: Path, name: str) -> None:
    known = json.loads(shared_file("cases/latency/expected.json").read_text())[name]["measured"]

    assert run(tmp_path, shared_file(f"cases/latency/{name}.jsonl.gz")) == 0

    source = open_data(tmp_path / "data")
    measured = source.sql(
        "select count(*), p50(duration_ms), p95(duration_ms), p99(duration_ms), bool_and(complete) "
        "from requests"
    ).rows[0]
    shares = source.sql(
        "select max(abs(self_ms - duration_ms)) from requests "
        "join (select trace_id, sum(self_ms) as self_ms from stages group by all) using (trace_id)"
    ).rows[0]
    source.close()
    assert measured[0] == known["traces"]
    assert measured[1:4] == pytest.approx((known["p50_ms"], known["p95_ms"], known["p99_ms"]), rel=0.005)
    assert measured[4]
    assert shares[0] < 1e-6


def test_help_names_every_flag_of_the_document_and_every_format() -> None:
    shown = import_files.parser().format_help()

    for flag in {"--url", "--data", *re.findall(r"`(--[a-z-]+)", DOCUMENT)} - {"--trace-config"}:
        assert flag in shown
    for form in ("OTLP", "Zipkin", "Jaeger", "Triton", "Chrome trace"):
        assert form in shown
        assert form in DOCUMENT
