"""Questions at 10 or 100 million spans: a trace by its id, SQL, a report, and every page of the dashboard.

    python benchmarks/large_store.py [--spans 10000000] [--data DIR] [--rounds 3] [--only page]

Makes the store first: a collector takes and seals a million spans of the dashboard's test traffic, and the
segment is copied under other trace ids, half an hour later each time, by the code that writes segments. DIR
keeps the store for another run; without it, it is deleted at the end. Each question is asked over HTTP of a
collector in its own process, each page is run as Streamlit runs it, without the browser and with an empty
cache. The window of a million requests is the last one that has so many.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ingest import Server, machine
from rich.progress import track

from tailscope_collector._sealed._parquet import FILES, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[1]
REQUESTS: Final = 125_000
"""Of the segment that is copied: a million spans, what a collector seals at a time unless told otherwise."""
STEP_S: Final = 1800
SEALED_S: Final = 300.0
BARS_S: Final = {"trace by id": 0.1, "report of 1,000,000 requests": 5.0}
PAGE_BAR_S: Final = {10_000_000: 2.0, 100_000_000: 3.0}


def first_segment(data: Path) -> None:
    """Have a collector take and seal the traffic."""
    server = Server(data, flags=("--seal-spans", str(8 * REQUESTS), "--seal-quiet-s", "2"))
    command = [sys.executable, "-m", "tests.dashboard.traffic", server.url, str(REQUESTS)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + SEALED_S
    while "tailscope_collector_segments 1\n" not in get(server, "/metrics").decode():
        if time.monotonic() > deadline:
            raise SystemExit("the collector did not seal what it was sent")
        time.sleep(1)
    server.process.terminate()
    server.process.wait(120)


def sealed(data: Path) -> list[Path]:
    """Return the folders of segments."""
    return sorted(path for path in (data / "segments").glob("*") if path.name.isdigit())


def fill(data: Path, spans: int) -> None:
    """Copy the segments that are there until the store has so many spans."""
    templates = sealed(data)
    with duckdb.connect(str(data / "active.duckdb")) as store:
        listed = store.sql("select * from segment_rows order by segment").to_arrow_table().to_pylist()
        have = sum(row["span_count"] for row in listed)
        of_template = {int(path.name): row for path, row in zip(templates, listed, strict=True)}
        each = have
        number = max(of_template)
        for copy in track(range(1, -(-(spans - have) // each) + 1), description="Copying segments"):
            for original, row in of_template.items():
                number += 1
                folder = data / "segments" / f"{number:08d}"
                write_copy(data / "segments" / f"{original:08d}", folder, copy, number)
                shift_ns = copy * STEP_S * 1_000_000_000
                later = {name: row[name] + shift_ns for name in ("first_unix_nano", "last_unix_nano")}
                rows = pa.Table.from_pylist([row | later | {"segment": number}])  # noqa: F841 - read by name
                store.execute("insert into segment_rows by name select * from rows")
                store.execute(
                    "insert into sealed_traces select trace_key(trace_id), ? from read_parquet(?)",
                    [number, str(folder / "requests.parquet")],
                )


def write_copy(original: Path, folder: Path, copy: int, number: int) -> None:
    """Write the files of a segment again, under other ids and later."""
    folder.mkdir(parents=True)
    for name, schema in FILES.items():
        with Writer(folder / f"{name}.parquet", schema) as writer:
            file = pq.ParquetFile(original / f"{name}.parquet")
            for group in range(file.num_row_groups):
                table = pa.table(file.read_row_group(group))
                if table.num_rows:
                    writer.write(changed(table, copy, number))


def changed(table: pa.Table, copy: int, number: int) -> pa.Table:
    """Return rows with the last eight digits of each trace id replaced, and their times moved."""
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name)
        if name == "trace_id":
            digits = np.array(column.to_pylist(), dtype="S32").view("S1").reshape(-1, 32).copy()
            digits[:, 24:] = np.frombuffer(f"{copy:08x}".encode(), dtype="S1")
            column = pa.array(digits.view("S32").ravel().astype("U32"))
        elif name == "segment":
            column = pa.array(np.full(table.num_rows, number))
        elif pa.types.is_timestamp(column.type):
            moved = column.cast(pa.int64()).to_numpy() + copy * STEP_S * 1_000_000
            column = pa.array(moved).cast(column.type)
        elif name.endswith("unix_nano"):
            column = pa.array(column.to_numpy() + copy * STEP_S * 1_000_000_000)
        columns[name] = column
    return pa.table(columns)


def timed(ask: Callable[[], object], rounds: int) -> list[float]:
    """Return the seconds of each round, least first."""
    taken: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - started)
    return sorted(taken)


def get(server: Server, path: str, **parameters: str) -> bytes:
    """Read an answer."""
    url = f"{server.url}{path}?{urlencode(parameters)}" if parameters else f"{server.url}{path}"
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:  # noqa: S310 - our own server
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.read().decode()}") from error
    return body


HOUR: Final = "start_time > (select max(start_time) from requests) - interval 1 hour"
QUERIES: Final = {
    "p99 by operation, all": "select operation, count(*), p99(duration_ms) from requests group by all",
    "p99 by minute, last hour": "select time_bucket(interval 1 minute, start_time) as at, count(*), "
    f"p99(duration_ms) from requests where {HOUR} group by all order by 1",
    "ms by stage, last hour": "select stage, sum(self_ms) from stages join requests using (trace_id) "
    f"where requests.{HOUR} group by all",
    "spans by name, last hour": "select operation, count(*), p99(duration_ms) from spans "
    f"where {HOUR} group by all",
    "slowest(100)": "select * from slowest(100)",
    "dependencies": "select * from dependencies",
}
SINCE: Final = """
select min(half_hour) from (
    select
        time_bucket(interval 30 minutes, start_time) as half_hour,
        count(*) as n,
        sum(count(*)) over (order by time_bucket(interval 30 minutes, start_time) desc) as upto
    from requests group by half_hour
) where upto - n < 1000000"""


def questions(server: Server) -> dict[str, Callable[[], object]]:
    """Return what is asked by SQL and HTTP, by name."""
    since = str(server.sql(SINCE)[0][0]).replace(" ", "T")
    trace = str(server.sql("select trace_id from requests limit 1 offset 1000")[0][0])
    return {
        "trace by id": lambda: get(server, f"/api/traces/{trace}"),
        "report of 1,000,000 requests": lambda: get(server, "/api/report", since=since),
        **{name: (lambda query=query: server.sql(query)) for name, query in QUERIES.items()},
    }


def pages(server: Server) -> dict[str, Callable[[], object]]:
    """Return the pages of the dashboard, by name: all requests, as a link without a window opens them."""
    logging.getLogger("streamlit").setLevel(logging.ERROR)
    import streamlit as st
    from streamlit.testing.v1 import AppTest

    import tailscope_dashboard._pages as listed
    from tailscope.conventions import ENV_URL

    os.environ[ENV_URL] = server.url
    trace = str(server.sql("select trace_id from requests limit 1 offset 2000")[0][0])

    def run(name: str) -> None:
        # A page is chosen by the path of the address, which a test run has not: make it the first one.
        listed.DEFAULT = name
        st.cache_data.clear()
        page = AppTest.from_string("from tailscope_dashboard import show\nshow()\n", default_timeout=600)
        page.query_params.update({"trace": trace} if name == "trace" else {})
        page.run()
        if page.exception or page.error:
            said = [str(one.value) for one in (*page.exception, *page.error)]
            raise SystemExit(f"page {name}: {' '.join(said)}")

    return {f"page {name}": (lambda name=name: run(name)) for name in listed.PAGES}


def main() -> int:
    """Make the store, ask, print a table; exit code 1 where a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=10_000_000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", metavar="TEXT", default="", help="what has this in its name, such as page")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        data = args.data or Path(work) / "data"
        if not sealed(data):
            first_segment(data)
            fill(data, args.spans)
        server = Server(data, flags=("--query-timeout-s", "600"))
        try:
            return ask_all(server, data, args)
        finally:
            server.process.terminate()
            server.process.wait(120)


def ask_all(server: Server, data: Path, args: argparse.Namespace) -> int:
    """Ask everything and print what it took."""
    spans = int(str(server.sql("select count(*) from spans")[0][0]))
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    print(f"{machine()}; {spans:,} spans in {len(sealed(data))} segments, {size / spans:.1f} bytes a span")
    print("| what | median s | slowest s | bar s |\n|---|---|---|---|")
    bar = min((s for n, s in PAGE_BAR_S.items() if spans <= n * 1.05), default=max(PAGE_BAR_S.values()))
    missed = False
    asked = questions(server) | pages(server)
    for name, ask in ((name, ask) for name, ask in asked.items() if args.only in name):
        wanted = bar if name.startswith("page ") else BARS_S.get(name)
        taken = timed(ask, args.rounds)
        missed |= wanted is not None and statistics.median(taken) > wanted
        print(f"| {name} | {statistics.median(taken):.2f} | {taken[-1]:.2f} | {wanted or ''} |", flush=True)
    print(
        f"collector's resident memory, peak {server.status('VmHWM') / 1024:,.0f} MiB; n = {args.rounds} each"
    )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
