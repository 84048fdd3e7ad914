"""Spans of servers that know nothing of Tailscope: stages by name and attribute, parts made of durations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import (
    InputError,
    Traces,
    known_servers,
    llm_requests,
    load_servers,
    stage_of,
    trace_detail,
)
from tests.analyzer.build import T0, span, table
from tests.shared import CHECKOUT

if TYPE_CHECKING:
    import random
    from pathlib import Path

VLLM = {
    "gen_ai.latency.time_to_first_token": "0.5",
    "gen_ai.latency.time_in_queue": "0.3",
    "gen_ai.latency.time_in_model_prefill": "0.15",
    "gen_ai.latency.time_in_model_decode": "0.4",
    "gen_ai.latency.time_in_model_inference": "0.55",
    "gen_ai.latency.e2e": "0.92",
    "gen_ai.usage.prompt_tokens": "200",
    "gen_ai.usage.completion_tokens": "41",
}


def engine(attributes: dict[str, str], *, name: str = "llm_request", end_ms: float = 930, **more: Any) -> Any:
    return span(name, 0, end_ms, kind="server", service="engine", attributes=attributes, **more)


def without(*parts: str) -> dict[str, str]:
    return {key: value for key, value in VLLM.items() if not key.endswith(parts)}


def read(*spans: dict[str, Any]) -> Traces:
    """Leave the stages to the analyzer, as for a table that no collector has seen."""
    return Traces.from_spans(table(*spans).drop_columns(["stage"]))


def stages(*spans: dict[str, Any]) -> dict[str, float]:
    """Return the milliseconds of each stage; of `other`, the category."""
    found: dict[str, float] = {}
    for stage, category, self_ns in read(*spans).ledger.select("stage", "category", "self_ns").rows():
        key = category if stage == "other" else stage
        found[key] = found.get(key, 0) + self_ns / 1e6
    return found


def events(**at_ms: float) -> list[dict[str, Any]]:
    return [
        {"time_unix_nano": T0 + round(at * 1e6), "name": name, "attributes": {}} for name, at in at_ms.items()
    ]


@pytest.mark.parametrize(
    ("scope", "operation", "stage"),
    [
        ("sglang server", "tokenize", "preprocess"),
        ("sglang server", "request_process", "queue"),
        ("", "prefill_waiting", "queue"),
        ("", "prefill_forward", "inference.prefill"),
        ("sglang server", "decode_loop", "inference.decode"),
        ("", "mooncake_send", "inference.kv_transfer"),
        ("", "prefill Req 0f3a11c2", None),
        ("", "Scheduler [TP 0] (host:0a1b2c3d | pid:17)", None),
        ("vllm.tracing.otel", "llm_request", None),
        ("vllm.tracing.otel", "Compile graph", "coldstart"),
        ("", "Load weights", "coldstart"),
        ("triton-server", "InferRequest", None),
        ("triton-server", "densenet_infer", None),
        ("text-generation-router", "queued", "queue"),
        ("text-generation-router", "decode", "inference.decode"),
        ("mine", "decode", None),
        ("", "send_generation", "postprocess"),
        ("", "router.route_request", "queue.route"),
        ("", "engine.generate", "inference"),
        ("", "llm_d.epp.scorer.prefix_cache", "queue.route"),
        ("", "llm_d.pd_proxy.chunked_decode", "inference.decode"),
        ("", "route_to_replica Ranker __call__", "queue.route"),
        ("", "replica_handle_request Ranker __call__", "inference"),
        ("", "proxy_http_request Ranker POST /", None),
        ("", "mp.lookup_prefetch", "preprocess.cache_lookup"),
        ("", "mp.retrieve", "inference.kv_transfer"),
        ("litellm", "auth /chat/completions", "auth"),
        ("", "execute_guardrail pii", "preprocess"),
        ("", "serverless.authorization.check", "auth"),
        ("", "model.postprocess", "postprocess"),
        ("", "predict-endpoint", None),
        ("", "call-pre", "preprocess"),
        ("", "call-predict", "inference"),
        ("", "cog.prediction.invoke", "inference"),
        ("", "cog.setup.predictor", "coldstart"),
    ],
)
def test_a_span_of_a_known_server_has_its_stage(scope: str, operation: str, stage: str | None) -> None:
    assert stage_of(scope=scope, operation=operation, kind="internal", explicit=None) == stage


@pytest.mark.parametrize(
    ("key", "value", "stage"),
    [
        ("gen_ai.operation.name", "chat", "inference"),
        ("gen_ai.operation.name", "retrieval", "preprocess"),
        ("gen_ai.operation.name", "invoke_agent", None),
        ("openinference.span.kind", "LLM", "inference"),
        ("openinference.span.kind", "reranker", "preprocess"),
        ("openinference.span.kind", "CHAIN", None),
        ("llm.request.type", "completion", "inference"),
        ("langfuse.observation.type", "generation", "inference"),
        ("mlflow.spanType", '"CHAT_MODEL"', "inference"),
    ],
)
def test_an_attribute_tells_the_stage_of_a_span_of_any_name(key: str, value: str, stage: str | None) -> None:
    def told(operation: str, said: str) -> str | None:
        return stage_of(scope="", operation=operation, kind="client", explicit=None, attributes={key: said})

    assert told("gpt-5 turbo", value) == stage
    assert told("auth", value) == "auth", "a name that is known comes first"
    assert told("step 1", "sonnet") is None


def test_in_a_mapped_table_an_attribute_still_tells_the_stage_of_an_unknown_name() -> None:
    llm = {"openinference.span.kind": "LLM"}
    spans = table(
        span("root", 0, 10, kind="server"),
        span("step 1", 0, 4, "root", attributes=llm),
        span("step 2", 4, 7, "root", attributes={"openinference.span.kind": "CHAIN"}),
        span("step 3", 7, 10, "root", attributes=llm, stage="rerank"),
    )

    ledger = Traces.from_spans(spans).ledger.select("operation", "stage").rows()
    assert sorted(ledger) == [("step 1", "inference"), ("step 2", "other"), ("step 3", "rerank")]


def test_an_engines_span_is_split_by_its_latency_attributes() -> None:
    assert stages(engine(VLLM)) == pytest.approx(
        {
            "preprocess": 50.0,  # before the first token, and neither queue nor prefill
            "queue": 300.0,
            "inference.prefill": 150.0,
            "inference.decode": 400.0,
            "postprocess": 20.0,  # what the engine counts after the last token
            "untraced": 10.0,
        }
    )


@pytest.mark.parametrize(
    ("missing", "found"),
    [
        (("first_token",), {"queue": 300, "inference.prefill": 150, "inference.decode": 400, "untraced": 80}),
        (
            ("in_queue",),
            {"inference.prefill": 150, "inference.decode": 400, "postprocess": 20, "untraced": 360},
        ),
        (
            ("prefill", "first_token"),
            {"queue": 300, "inference.prefill": 150, "inference.decode": 400, "untraced": 80},
        ),
        (("prefill", "decode", "e2e"), {"queue": 300, "inference": 550, "untraced": 80}),
        (("prefill", "decode", "inference"), {"queue": 300, "inference": 620, "untraced": 10}),
        (("prefill", "decode", "inference", "e2e"), {"queue": 300, "untraced": 630}),
        (("prefill", "in_queue", "inference", "e2e"), {"inference.decode": 400, "untraced": 530}),
        (("prefill", "in_queue", "inference", "decode"), {"self": 930}),
    ],
)
def test_what_an_engine_does_not_tell_stays_unexplained(
    missing: tuple[str, ...], found: dict[str, float]
) -> None:
    assert stages(engine(without(*missing))) == pytest.approx(found)


def test_an_engine_is_known_by_its_attributes_whatever_its_names_are() -> None:
    trt = {**without("prefill", "decode", "inference"), "gen_ai.latency.kv_cache_transfer_time": "0.02"}

    assert stages(engine(trt, name="a81f3c", scope="c0ffee")) == pytest.approx(
        {"queue": 300.0, "inference.kv_transfer": 20.0, "inference": 600.0, "untraced": 10.0}
    )


@pytest.mark.parametrize("value", ["30", "-0.3", "300", "1e12"])
def test_a_duration_that_contradicts_its_span_splits_nothing_and_is_said(value: str) -> None:
    spans = engine(VLLM | {"gen_ai.latency.time_in_queue": value})

    assert stages(spans) == {"self": 930.0}
    assert trace_detail(table(spans))["notes"] == [
        "1 spans tell of durations that do not fit into them: cut or left out."
    ]


@pytest.mark.parametrize("value", ["soon", "", "nan", "inf", "None"])
def test_text_that_is_no_duration_is_as_good_as_none(value: str) -> None:
    assert stages(engine(VLLM | {"gen_ai.latency.time_in_queue": value})) == pytest.approx(
        stages(engine(without("in_queue")))
    )


def test_durations_that_together_are_longer_than_the_span_are_cut_at_its_end() -> None:
    spans = engine(VLLM, end_ms=700)

    assert stages(spans) == pytest.approx(
        {"preprocess": 50.0, "queue": 300.0, "inference.prefill": 150.0, "inference.decode": 200.0}
    )
    assert len(trace_detail(table(spans))["notes"]) == 1


def test_a_recorded_span_within_a_part_takes_its_time_from_it() -> None:
    root = engine(VLLM)
    fetched = span("mp.retrieve", 360, 400, "llm_request", service="engine")

    found = stages(root, fetched)
    assert found["inference.kv_transfer"] == pytest.approx(40.0)
    assert found["inference.prefill"] == pytest.approx(110.0)
    assert sum(found.values()) == pytest.approx(930.0)


def test_stages_that_are_recorded_are_not_made_a_second_time() -> None:
    root = engine(VLLM, name="Req 0f3a11c2", scope="sglang server")
    thread = span("Scheduler [TP 0] (host:0a1b2c3d | pid:17)", 10, 920, root["span_id"], service="engine")
    waiting = span("prefill_waiting", 10, 400, thread["span_id"], service="engine")
    decoding = span("decode_forward", 520, 920, thread["span_id"], service="engine")

    assert stages(root, thread, waiting, decoding) == pytest.approx(
        {"queue": 390.0, "inference.decode": 400.0, "untraced": 140.0}
    )


def test_sglangs_prefill_holds_its_queue_so_that_only_the_decoding_is_split_off() -> None:
    assert stages(engine(VLLM, name="Req 0f3a11c2")) == pytest.approx(
        {"inference.decode": 400.0, "untraced": 530.0}
    )


def test_tgi_writes_durations_as_rust_does() -> None:
    told = {"validation_time": "812.5µs", "queue_time": "30.25ms", "inference_time": "0.0601s"}
    found = stages(
        span("POST /", 0, 100, kind="server"),
        span("chat_completions", 0, 100, "POST /", attributes=told | {"time_per_token": "5.5ms"}),
    )

    assert found["preprocess"] == pytest.approx(0.8125)
    assert found["queue"] == pytest.approx(30.25)
    assert found["inference"] == pytest.approx(60.1)
    plain = span("batch", 0, 100, kind="server", attributes={"queue_time": "30", "inference_time": "60"})
    assert stages(plain) == {"self": 100.0}, "numbers under so common names say nothing"


def test_triton_is_split_by_pairs_of_events_one_of_them_across_two_spans() -> None:
    spans = [
        span("InferRequest", 0, 100, kind="server", events=events(HTTP_RECV_START=1, HTTP_RECV_END=3)),
        span("bert", 4, 90, "InferRequest", kind="server", events=events(REQUEST_START=4, QUEUE_START=5)),
        span(
            "compute",
            40,
            88,
            "bert",
            kind="server",
            events=events(COMPUTE_START=40, COMPUTE_INPUT_END=45, COMPUTE_OUTPUT_START=80, COMPUTE_END=88),
        ),
    ]

    assert stages(*spans) == pytest.approx(
        {
            "network": 2.0,
            "queue": 35.0,
            "inference.h2d": 5.0,
            "inference": 35.0,
            "inference.d2h": 8.0,
            "untraced": 15.0,
        }
    )


def test_a_request_that_triton_cancels_in_its_queue_waited_until_its_end() -> None:
    model = span("bert", 0, 90, kind="server", events=events(QUEUE_START=5, REQUEST_END=88))
    step = span("step", 10, 50, "bert", kind="server", events=events(QUEUE_START=11))

    assert stages(model) == pytest.approx({"queue": 83.0, "untraced": 7.0})
    assert "queue" not in stages(model, step), "an ensemble is no request that was cancelled"


def test_truss_records_sections_as_pairs_of_events() -> None:
    pair = events(**{"start: model-call": 10, "done: model-call": 80})

    assert stages(span("predict-endpoint", 0, 100, kind="server", events=pair)) == pytest.approx(
        {"inference": 70.0, "untraced": 30.0}
    )


def test_the_waterfall_lists_what_was_sent_and_says_where_a_part_came_from() -> None:
    detail = trace_detail(table(engine(VLLM), span("mp.retrieve", 360, 400, "llm_request", service="engine")))

    assert [(row["operation"], row["depth"]) for row in detail["spans"]] == [
        ("llm_request", 0),
        ("mp.retrieve", 1),
    ]
    assert {piece["span_id"] for piece in detail["critical_path"]} == {"llm_request", "mp.retrieve"}
    assert [piece["stage"] for piece in detail["critical_path"]][:2] == ["preprocess", "queue"]
    assert Traces.from_spans(table(engine(VLLM))).requests["span_count"].to_list() == [1]


def test_a_part_does_not_make_a_coarse_clock_look_fine() -> None:
    start = T0 - T0 % 1_000_000  # milliseconds throughout
    odd = VLLM | {"gen_ai.latency.time_in_queue": "0.3001234"}
    before = span("before", 0, 31, "root", start_unix_nano=start)
    root = span("root", 0, 990, kind="server", start_unix_nano=start)
    called = span("llm_request", 30, 960, "root", start_unix_nano=start + 30_000_000, attributes=odd)

    own = dict(read(root, before, called).ledger.select("operation", "self_ms").rows())
    assert own["before"] == 30.0, "an overlap of the clock's own grain is none"


DURATIONS = st.sampled_from(["0", "0.01", "0.05", "0.2", "-1", "7", "x", "20ms"])


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(known_servers().keys)), DURATIONS, max_size=8),
    st.lists(st.tuples(st.integers(-20, 120), st.integers(0, 150)), max_size=5),
    st.lists(st.tuples(st.sampled_from(known_servers().events), st.integers(-20, 150)), max_size=6),
    st.randoms(use_true_random=False),
)
def test_whatever_a_span_tells_its_ledger_is_exact_and_in_any_order_the_same(
    attributes: dict[str, str],
    children: list[tuple[int, int]],
    marks: list[tuple[str, int]],
    shuffler: random.Random,
) -> None:
    told = [event for name, at in marks for event in events(**{name: at})]
    spans = [
        span("root", 0, 130, kind="server"),
        span("llm", 5, 105, "root", attributes=attributes, events=told),
        *(span(f"tokenize {i}", at, at + ms, "llm", id=f"c{i}") for i, (at, ms) in enumerate(children)),
    ]

    ledger = read(*spans).ledger.sort("stage", "category", "operation")
    shuffler.shuffle(spans)

    assert ledger["self_ns"].sum() == 130_000_000
    assert (ledger["self_ns"] > 0).all()
    assert read(*spans).ledger.sort("stage", "category", "operation").equals(ledger)


def test_tokens_and_times_of_an_engine_by_old_and_new_names() -> None:
    old = engine(VLLM, trace="old")
    new = span(
        "chat m",
        0,
        100,
        trace="new",
        kind="client",
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": "7",
            "gen_ai.usage.output_tokens": "9",
            "gen_ai.response.time_to_first_chunk": "0.02",
        },
    )
    rows = llm_requests(read(old, new, span("GET /", 0, 5, trace="plain", kind="server")))

    first, second = rows.sort("trace_id", descending=True).to_dicts()
    assert (first["input_tokens"], first["output_tokens"], first["ttft_ms"]) == (200, 41, 500.0)
    assert first["tpot_ms"] == pytest.approx(10.0)
    assert (first["queue_ms"], first["prefill_ms"], first["decode_ms"]) == pytest.approx((300, 150, 400))
    assert first["prefill_ms_per_1k_input_tokens"] == pytest.approx(750.0)
    assert first["decode_ms_per_output_token"] == pytest.approx(10.0)
    assert (second["input_tokens"], second["output_tokens"], second["ttft_ms"]) == (7, 9, 20.0)
    assert (second["prefill_ms"], second["decode_ms_per_output_token"]) == (None, None)


def test_a_users_table_comes_before_the_known_servers(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(
        '[[span]]\nserver = "ours"\noperation = "auth"\nstage = "queue.gate"\n'
        '[[layout]]\nserver = "ours"\n'
        'part = [{ name = "embed", stage = "inference", key = "x.embed_us", unit = "us" }]\n'
    )
    servers = load_servers(file)
    spans = table(
        span("root", 0, 10, kind="server"),
        span("auth", 0, 4, "root"),
        span("work", 4, 10, "root", attributes={"x.embed_us": "2500"}),
    ).drop_columns(["stage"])

    ledger = Traces.from_spans(spans, servers=servers).ledger
    assert dict(ledger.select("operation", "self_ms").rows()) == {"auth": 4.0, "embed": 2.5, "work": 3.5}
    assert set(ledger["stage"]) == {"queue.gate", "inference", "other"}
    assert servers.stage_of(scope="", operation="call-pre", kind="", explicit=None) == "preprocess"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[span", "is not TOML"),
        ("[[spam]]\n", "no such table: spam"),
        ('[[span]]\nstage = "auth"\n', "span row 1: the key operation is missing"),
        ('[[span]]\noperation = "x"\nstage = "auth"\ncolour = "red"\n', "span row 1: no such key: colour"),
        (
            '[[span]]\noperation = 3\nstage = "auth"\n',
            "span row 1, operation: 3 is no text and no list of texts",
        ),
        ('[[span]]\noperation = "x"\nstage = " auth"\n', "span row 1, stage: ' auth'"),
        ('[[span]]\noperation = "x"\nstage = "a"\nbackground = 1\n', "background: 1 must be true or false"),
        ('[span]\noperation = "x"\n', "span is one table"),
        ("[[layout]]\npart = []\n", "layout row 1, part: [] is no list of parts"),
        (
            '[[layout]]\npart = [{ name = "a", stage = "b" }]\n',
            "layout row 1, part 1: say either key, or from and to",
        ),
        (
            '[[layout]]\npart = [{ name = "a", stage = "b", key = "c", unit = "h" }]\n',
            "unit: 'h' must be one of ns",
        ),
        ('[[layout]]\nanchor = "top"\npart = [{ name = "a", stage = "b", key = "c" }]\n', "anchor: 'top'"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_by_file_row_and_key(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)

    with pytest.raises(InputError) as raised:
        load_servers(file)

    assert message in str(raised.value)
    assert "mine.toml" in str(raised.value)


def test_a_table_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"servers none\.toml cannot be read: No such file"):
        load_servers("none.toml")


PAGE = CHECKOUT / "docs" / "servers.md"


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

    exec(compile(first, "servers.md", "exec"), {})  # noqa: S102 - our own page

    assert "queue" in capsys.readouterr().out
    room: dict[str, Any] = {}
    exec(compile(second, "servers.md", "exec"), room)  # noqa: S102 - our own page
    room["slow_decoding"](read(engine(VLLM)))
    assert "10.0" in capsys.readouterr().out


def test_the_rows_of_the_page_are_read(tmp_path: Path) -> None:
    (rows,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "servers.toml").write_text(rows)

    servers = load_servers(tmp_path / "servers.toml")
    spans = table(
        span("run", 0, 50, attributes={"our.wait_ms": "20", "our.total_ms": "45"}),
        span(
            "admit", 45, 50, "run", scope="gateway", events=events(**{"rerank.start": 46, "rerank.end": 48})
        ),
    ).drop_columns(["stage"])
    assert dict(Traces.from_spans(spans, servers=servers).ledger.select("stage", "self_ms").rows()) == {
        "queue": 20.0,
        "inference": 25.0,
        "postprocess": 2.0,
        "queue.gate": 3.0,
    }
