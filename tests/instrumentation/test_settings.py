"""Settings: precedence, meaning of OTEL_*, and values that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace

import tailscope
from tailscope import _guard
from tailscope._runtime import RUNTIME
from tailscope._settings import SETTINGS, resolve

if TYPE_CHECKING:
    from tests.instrumentation.receiver import Receiver


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ({}, {}, ("unknown_service", "default")),
        ({}, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=from-resource"}, ("from-resource", "default")),
        ({}, {"OTEL_SERVICE_NAME": "otel"}, ("otel", "OTEL_SERVICE_NAME")),
        ({}, {"OTEL_SERVICE_NAME": "otel", "TAILSCOPE_SERVICE": "ours"}, ("ours", "TAILSCOPE_SERVICE")),
        ({"service": "argument"}, {"TAILSCOPE_SERVICE": "ours"}, ("argument", "argument")),
        ({}, {"TAILSCOPE_SERVICE": "", "OTEL_SERVICE_NAME": "otel"}, ("otel", "OTEL_SERVICE_NAME")),
    ],
)
def test_argument_then_ours_then_otel_then_default(
    arguments: dict[str, Any], environment: dict[str, str], expected: tuple[str, str]
) -> None:
    settings = resolve(arguments, environment)

    assert (settings.service, settings.sources["service"]) == expected


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ({}, {}, ("grpc", "http://127.0.0.1:4317")),
        ({"endpoint": "http://c:4317"}, {}, ("grpc", "http://c:4317")),
        ({"endpoint": "c:9000"}, {}, ("grpc", "http://c:9000")),
        ({"endpoint": "https://c"}, {}, ("grpc", "https://c")),
        ({"endpoint": "http://c:4318"}, {}, ("http/protobuf", "http://c:4318/v1/traces")),
        ({"endpoint": "http://c/v1/traces"}, {}, ("http/protobuf", "http://c/v1/traces")),
        ({"endpoint": "http://c/otlp/mine"}, {}, ("http/protobuf", "http://c/otlp/mine")),
        ({"protocol": "http/protobuf"}, {}, ("http/protobuf", "http://127.0.0.1:4318/v1/traces")),
        ({"protocol": "grpc", "endpoint": "http://c:4318"}, {}, ("grpc", "http://c:4318")),
        (
            {},
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c/base/", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            ("http/protobuf", "http://c/base/v1/traces"),
        ),
        (
            {},
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/exact",
            },
            ("http/protobuf", "http://t/exact"),
        ),
        (
            {},
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            ("http/protobuf", "http://127.0.0.1:4318/v1/traces"),
        ),
    ],
)
def test_endpoint_and_protocol(
    arguments: dict[str, Any], environment: dict[str, str], expected: tuple[str, str]
) -> None:
    target = resolve(arguments, environment).target

    assert (target.protocol, target.endpoint) == expected


def test_otel_variables_keep_their_meaning() -> None:
    settings = resolve(
        {},
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%3Db, x = 1",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "only=traces",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_RESOURCE_ATTRIBUTES": "service.version=1.2,team=r%20d",
            "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "10",
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "100",
            "OTEL_SDK_DISABLED": "TRUE",
        },
    )

    assert settings.target.headers == {"only": "traces"}
    assert resolve({}, {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%3Db, x = 1"}).target.headers == {
        "api-key": "a=b",
        "x": "1",
    }
    assert settings.resource_attributes == {"service.version": "1.2", "team": "r d"}
    assert (settings.timeout_s, settings.target.compression) == (2.5, "gzip")
    assert (settings.max_attributes, settings.max_value_chars, settings.disabled) == (10, 100, True)


@pytest.mark.parametrize(
    ("arguments", "environment", "cause", "words"),
    [
        ({"protocol": "http/json"}, {}, "setting:protocol", "want one of grpc, http/protobuf"),
        (
            {},
            {"TAILSCOPE_BUFFER_BYTES": "lots"},
            "setting:buffer_bytes",
            "TAILSCOPE_BUFFER_BYTES cannot be 'lots'",
        ),
        ({"timeout_s": -1}, {}, "setting:timeout_s", "init(timeout_s=...) cannot be -1: want 0.05 to 300"),
        ({"headers": "no-equals"}, {}, "setting:headers", "'no-equals' is not key=value"),
        ({"endpoint": "http://c:port"}, {}, "setting:endpoint", "cannot be 'http://c:port'"),
        ({"endpoint": "ftp://c"}, {}, "setting:endpoint", "want http or https"),
    ],
)
def test_an_impossible_value_is_reported_and_its_default_used(
    arguments: dict[str, Any],
    environment: dict[str, str],
    cause: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = resolve(arguments, environment)

    assert settings == resolve({}, {})
    assert _guard.errors() == {cause: 1}
    assert words in caplog.text


def test_every_setting_is_an_argument_of_init_and_has_a_sentence() -> None:
    import inspect

    # Two arguments are objects of the SDK, which no environment can give.
    settings = [setting.name for setting in SETTINGS]
    assert list(inspect.signature(tailscope.init).parameters) == [*settings, "sampler", "span_processors"]
    for setting in SETTINGS:
        assert setting.sentence.endswith("."), setting.name
        assert setting.environment[0] == f"TAILSCOPE_{setting.name.upper()}"


def test_init_twice_changes_nothing_and_says_so_once(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    tailscope.init(service="first", endpoint=receiver.endpoint)
    tailscope.init(service="first", endpoint=receiver.endpoint)
    assert caplog.records == []
    for _ in range(2):
        tailscope.init(service="second", endpoint=receiver.endpoint)
    with tailscope.request("predict"):
        pass

    assert tailscope.flush(timeout_s=10)
    assert receiver.spans()[0].resource["service.name"] == "first"
    assert len(caplog.records) == 1
    assert "called before with other settings" in caplog.text


@pytest.mark.parametrize("variable", ["OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none"])
def test_disabled_changes_nothing(receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(*variable.split("="))
    tailscope.init(endpoint=receiver.endpoint)
    with tailscope.request("predict"):
        pass

    assert tailscope.stats().mode == "disabled"
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert RUNTIME.recorder is None


def test_functions_decorated_before_init_record_after_it(receiver: Receiver) -> None:
    @tailscope.request
    def predict() -> None:
        with tailscope.stage("auth"):
            pass

    proxy = trace.get_tracer("early")
    predict()
    tailscope.init(endpoint=receiver.endpoint)
    predict()
    with proxy.start_as_current_span("early tracer"):
        pass

    assert tailscope.flush(timeout_s=10)
    assert [span.name for span in receiver.spans()] == ["auth", "predict", "early tracer"]


def test_resource_says_what_the_process_is(receiver: Receiver) -> None:
    import os
    import platform

    tailscope.init(
        service="ranker", endpoint=receiver.endpoint, resource_attributes={"service.version": "2", "gpu": 1}
    )
    with tailscope.request("predict"):
        pass

    assert tailscope.flush(timeout_s=10)
    resource = dict(receiver.spans()[0].resource)
    assert len(resource.pop("service.instance.id")) == 36
    assert resource.pop("host.name")
    assert resource.pop("telemetry.sdk.version")
    assert resource.pop("host.cpu.count") >= 1
    resource.pop("container.cpu.limit", None)  # what the machine and other libraries make of it
    resource.pop("omp.threads", None)
    assert resource == {
        "service.name": "ranker",
        "service.version": "2",
        "gpu": 1,
        "telemetry.sdk.name": "tailscope",
        "telemetry.sdk.language": "python",
        "process.pid": os.getpid(),
        "process.runtime.name": "cpython",
        "process.runtime.version": platform.python_version(),
    }


def test_one_broken_pair_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    settings = resolve({}, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=ranker,broken,team=ml,=x"})

    assert (settings.service, settings.resource_attributes["team"]) == ("ranker", "ml")
    assert "'broken' is not key=value" in caplog.text


def test_headers_are_texts_whatever_was_given() -> None:
    assert resolve({"headers": {"X-Version": 3}}, {}).target.headers == {"X-Version": "3"}


@pytest.mark.parametrize(
    ("variables", "endpoint"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "https://collector:4317"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317", "OTEL_EXPORTER_OTLP_INSECURE": "true"},
            "http://collector:4317",
        ),
        ({"TAILSCOPE_ENDPOINT": "collector:4317"}, "http://collector:4317"),
    ],
)
def test_an_address_without_a_scheme_means_what_its_variable_means(
    variables: dict[str, str], endpoint: str
) -> None:
    assert resolve({}, variables).target.endpoint == endpoint


def test_the_delay_of_opentelemetrys_batches_is_ours() -> None:
    assert resolve({}, {"OTEL_BSP_SCHEDULE_DELAY": "200"}).flush_interval_s == 0.2
    assert resolve({"flush_interval_s": 1}, {"OTEL_BSP_SCHEDULE_DELAY": "200"}).flush_interval_s == 1
