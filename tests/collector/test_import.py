"""`tailscope import`: files in, counts and reasons out."""

from __future__ import annotations

import gzip
import io
import json
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailscope_collector import Collector, open_data
from tailscope_collector._trace_files import UnreadableFileError, pieces, read_bytes
from tailscope_collector.commands import import_files
from tests.collector.building import SpanSpec, body
from tests.collector.serving import ask_rows
from tests.shared import shared_file

if TYPE_CHECKING:
    from tests.collector.building import Bench


def request_line(span: int) -> str:
    span_tree = {"traceId": f"{1:032x}", "spanId": f"{span:016x}", "name": "op", "startTimeUnixNano": "5"}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span_tree]}]}]})


def run(tmp_path: Path, *files: object) -> int:
    return import_files.main([*map(str, files), "--data", str(tmp_path / "data")])


def stored(tmp_path: Path) -> int:
    source = open_data(tmp_path / "data")
    try:
        return int(source.sql("select count(*) from spans").rows[0][0])
    finally:
        source.close()


@pytest.mark.parametrize(
    "name", ["pretty.json", "one.json", "lines.jsonl", "lines.jsonl.gz", "request.pb", "request.pb.gz"]
)
def test_every_form_of_otlp_is_read(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    content = {
        "pretty.json": json.dumps(json.loads(request_line(1)), indent=2).encode(),
        "one.json": b"\xef\xbb\xbf" + request_line(1).encode(),
        "lines.jsonl": f"{request_line(1)}\n\n{request_line(2)}\n".encode(),
        "request.pb": body(SpanSpec(span=1), SpanSpec(span=2)),
    }[name.removesuffix(".gz")]
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    assert run(tmp_path, file) == 0

    assert stored(tmp_path) == (1 if "json" in name and "jsonl" not in name else 2)


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
        f"Imported 2 spans in 3 export requests of 1 file into {tmp_path / 'data'}; "
        "refused 2 requests, 1 span."
    ) in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'[{"traceId": "1", "id": "2"}]', "is Zipkin v2 JSON"),
        (b'{"data": [{"traceID": "1"}]}', "is Jaeger JSON"),
        (b'{"traceEvents": []}', "is a Chrome trace"),
        (b'[{"id": 1, "model_name": "m"}]', "is a Triton trace"),
        (
            b"TIMESTAMP,Tokens\n1,2\n",
            "neither OTLP JSON nor an OTLP protobuf request (it begins with 'TIMESTAMP,Tokens')",
        ),
        (b"{ nothing", "is not JSON"),
        (b"\x1f\x8bnot gzip", "gzip"),
        (b"\xff\xff\xff", "neither OTLP JSON nor an OTLP protobuf request"),
    ],
)
def test_what_is_no_otlp_is_named(
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


def otlp_files() -> list[tuple[Path, int | None]]:
    """Return the OTLP files of the shared folder with the number of spans that its index names."""
    lines = shared_file("traces/index.tsv").read_text().splitlines()
    rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=False)) for line in lines[1:]]
    wanted = [row for row in rows if row["format"].startswith("otlp") or row["format"] == "protobuf"]
    return [
        (shared_file(f"traces/{row['file']}"), int(row["spans"]) if row["spans"] else None) for row in wanted
    ]


def test_every_otlp_file_of_the_shared_folder_is_imported_or_refused_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [file for file, _ in otlp_files()]

    code = run(tmp_path, *files)

    said, _, _ = capsys.readouterr().err.partition("\nImported ")
    refused = {
        Path(line.partition(":")[0].partition(",")[0]).name for line in said.splitlines() if "otlp_" in line
    }
    assert code == 1
    assert refused == {"otlp_duckdbotlp_malformed.jsonl", "otlp_duckdbotlp_multifile_malformed_traces.jsonl"}


def test_every_otlp_file_of_the_shared_folder_holds_the_spans_that_its_index_names(bench: Bench) -> None:
    # Of the malformed file one line is OTLP, and the ids of its span have three digits.
    known = {"otlp_duckdbotlp_malformed.jsonl": 0}
    for file, spans in otlp_files():
        bodies = []
        with suppress(UnreadableFileError):
            bodies = [piece.body for piece in pieces(read_bytes(str(file)), bench.decode) if piece.body]
        accepted = sum(bench.read(*bodies).accepted) if bodies else 0

        if spans is None:
            assert accepted > 0, file.name
        else:
            assert accepted == known.get(file.name, spans), file.name


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
