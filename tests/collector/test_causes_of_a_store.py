"""Causes of a store: found from its own spans, with proofs that its views can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailscope_analyzer import Selection, report
from tailscope_collector import open_data
from tailscope_collector.commands import import_files
from tests.analyzer.plants import STATED, gpu_contention
from tests.analyzer.plants_of_groups import GROUPS
from tests.analyzer.windows import healthy
from tests.shared import shared_file

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED = {
    "A01": "gc_pause",
    "A06": "recompilation",
    "A13": "head_of_line",
    "A16": "event_loop_blocked",
    "A22": "retries",
    "A24": "network_delay",
}


@pytest.mark.parametrize("case", EXPECTED)
def test_a_store_gives_its_spans_to_those_who_look_for_causes(case: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    import_files.main([str(shared_file(f"cases/latency/{case}.jsonl.gz")), "--data", str(data)])
    source = open_data(data)
    try:
        causes = source.report(Selection(), percentile=0.99).causes
        answers = [source.sql(proof["sql"]).table for cause in causes for proof in cause["evidence"]]
    finally:
        source.close()

    assert causes[0]["cause"] == EXPECTED[case]
    assert all(0 < len(answer) <= 1000 for answer in answers)


def test_every_proof_is_a_query_that_the_views_answer(tmp_path: Path) -> None:
    source = open_data(tmp_path / "data", create=True)
    asked: set[str] = set()
    try:
        for plant in (*STATED, gpu_contention, *GROUPS):
            window = healthy(450)
            plant(window)
            for cause in report(window.traces()).causes:
                asked |= {proof["sql"] for proof in cause["evidence"]}
        for query in asked:
            source.sql(query)
    finally:
        source.close()

    assert len(asked) >= len(STATED) + len(GROUPS) - 1
