"""The OpenAPI document: it names every route, and what is answered is what it says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tailscope_collector import Collector, Security
from tailscope_collector._openapi import document
from tests.collector.building import SpanSpec, body
from tests.collector.serving import call, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
EXAMPLES = 8
"""Requests of each operation; `python -m tests.fuzz openapi --minutes 10` makes more."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("openapi") / "data") as made:
        post_protobuf(made.url, body(SpanSpec(kind=2), SpanSpec(span=2, parent=1, name="inference")))
        yield made


def served(collector: Collector) -> set[tuple[str, str]]:
    """Return (path, method) of every route, as the document spells them."""
    return {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for route in collector.routes
        for method in (route.methods or set()) - {"HEAD"}
    }


def test_every_route_is_in_it_and_nothing_else(running: Collector) -> None:
    described = call(f"{running.url}/openapi.json").json

    named = {(path, method) for path, item in described["paths"].items() for method in item}

    assert named == served(running)


def test_it_says_which_operations_want_a_token(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("query-0123456789abcdef")
    (tmp_path / "tokens").chmod(0o600)
    with Collector(
        tmp_path / "data", security=Security(query_token_file=str(tmp_path / "tokens"))
    ) as guarded:
        shown = {"Authorization": "Bearer query-0123456789abcdef"}
        described = call(f"{guarded.url}/openapi.json", **shown).json
        for path, item in described["paths"].items():
            for method, operation in item.items():
                wants = "security" in operation
                answer = call(f"{guarded.url}{path.replace('{', '').replace('}', '')}", method=method.upper())
                assert wants == (answer.status == 401), path


@pytest.mark.parametrize("side", ["ingest", "query"])
def test_tokens_of_one_side_are_asked_for_there_alone(side: str) -> None:
    described = document("1", ingest=side == "ingest", query=side == "query")

    schemes = {
        scheme
        for item in described["paths"].values()
        for operation in item.values()
        for wanted in operation.get("security", [])
        for scheme in wanted
    }

    assert schemes == {f"{side}Token"}


def operations() -> list[tuple[str, str]]:
    paths = document("1", ingest=False, query=False)["paths"]
    return [(path, method) for path, item in paths.items() for method in item]


@pytest.mark.parametrize(("path", "method"), operations())
def test_what_is_answered_is_what_the_document_says(running: Collector, path: str, method: str) -> None:
    """Cases made from the document: no fault, and each status, type and body is one that it names."""
    schema = schemathesis.openapi.from_dict(document("1", ingest=False, query=False))
    operation = schema[path][method.upper()]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def drive(data: Any) -> None:
        case = data.draw(operation.as_strategy(generation_mode=data.draw(st.sampled_from(MODES))))
        answer = case.call(base_url=running.url, timeout=30)
        if answer.status_code == 503:
            return
        case.validate_response(
            answer,
            checks=[
                not_a_server_error,
                status_code_conformance,
                content_type_conformance,
                response_schema_conformance,
            ],
        )

    drive()
