"""Every setting of `tailscope.init`, declared once: name, environment, type, default, bounds, sentence.

Owns precedence (argument, TAILSCOPE_*, OTEL_*, default) and validation. The table in docs/instrumentation.md
is made from SETTINGS and a test holds the two together. Reads the environment only inside `resolve`; never
raises for a value: an impossible one is reported and its default used, because a typo must not stop a model
server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from tailscope import _guard, conventions
from tailscope._transport import TRACES_PATH, Target

PROTOCOLS: Final = ("grpc", "http/protobuf")
COMPRESSIONS: Final = ("none", "gzip")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting and how its text is read."""

    name: str
    environment: tuple[str, ...]
    """Variables that set it, the first that is set wins."""
    parse: Callable[[Any], Any]
    kind: str
    default: Any
    sentence: str
    bounds: tuple[float, float] | None = None


def text(value: Any) -> str:
    """Read a text."""
    return str(value).strip()


def yes(value: Any) -> bool:
    """Read a yes or no, as OpenTelemetry spells it: only "true" is true."""
    return value if isinstance(value, bool) else str(value).strip().lower() == "true"


def pairs(value: Any) -> dict[str, Any]:
    """Read `key=value,key=value` with percent-encoded values, or take a mapping."""
    if isinstance(value, Mapping):
        return {str(key): inner for key, inner in cast("Mapping[object, Any]", value).items()}
    found: dict[str, Any] = {}
    broken: list[str] = []
    for entry in str(value).split(","):
        key, equals, inner = entry.partition("=")
        if not entry.strip():
            continue
        if not equals or not key.strip():
            broken.append(f"{entry.strip()!r} is not key=value")
        else:
            found[unquote(key.strip())] = unquote(inner.strip())
    if broken and not found:
        raise ValueError(broken[0])
    for problem in broken:
        _guard.report("setting:pairs", f"{problem}. Tailscope goes on without it, with the others")
    return found


def url(value: Any) -> str:
    """Read the URL of a collector; without a scheme it is plain http."""
    endpoint = str(value).strip()
    if "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("want http or https and a host")
    _ = parts.port  # raises for a port that is no number
    return endpoint


def one_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    """Read one of a few words."""

    def parse(value: Any) -> str:
        word = str(value).strip().lower()
        if word not in names:
            raise ValueError(f"want one of {', '.join(names)}")
        return word

    return parse


def milliseconds(value: Any) -> float:
    """Read milliseconds as OTEL_* has them, and return seconds."""
    return float(value) / 1000


def otlp(name: str) -> tuple[str, ...]:
    """Return the variables of an OTLP exporter setting: ours, the one for traces, the general one."""
    return (f"TAILSCOPE_{name}", f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}")


SETTINGS: Final = (
    Setting(
        "service",
        ("TAILSCOPE_SERVICE", "OTEL_SERVICE_NAME"),
        text,
        "text",
        None,
        "Name of the service, the same for all its replicas (`service.name`).",
    ),
    Setting(
        "endpoint",
        otlp("ENDPOINT"),
        url,
        "URL",
        None,
        f"Where spans go. Default `http://127.0.0.1:{conventions.DEFAULT_GRPC_PORT}` with gRPC, "
        f"`http://127.0.0.1:{conventions.DEFAULT_HTTP_PORT}` with HTTP.",
    ),
    Setting(
        "protocol",
        otlp("PROTOCOL"),
        one_of(PROTOCOLS),
        "`grpc` or `http/protobuf`",
        None,
        "How spans are sent. Default `grpc`, or `http/protobuf` where the endpoint's port is "
        f"{conventions.DEFAULT_HTTP_PORT} or it has a path.",
    ),
    Setting(
        "headers",
        otlp("HEADERS"),
        pairs,
        "`key=value,...`",
        {},
        "Sent with every request, for example a token.",
    ),
    Setting(
        "resource_attributes",
        ("TAILSCOPE_RESOURCE_ATTRIBUTES", "OTEL_RESOURCE_ATTRIBUTES"),
        pairs,
        "`key=value,...`",
        {},
        "What is true of every span of the process, for example `service.version`.",
    ),
    Setting(
        "compression",
        otlp("COMPRESSION"),
        one_of(COMPRESSIONS),
        "`none` or `gzip`",
        "none",
        "Of the requests.",
    ),
    Setting(
        "certificate",
        otlp("CERTIFICATE"),
        text,
        "path",
        None,
        "Certificate authority of an `https` endpoint.",
    ),
    Setting(
        "client_certificate",
        otlp("CLIENT_CERTIFICATE"),
        text,
        "path",
        None,
        "Certificate that we show to an `https` endpoint, with its chain.",
    ),
    Setting(
        "client_key",
        otlp("CLIENT_KEY"),
        text,
        "path",
        None,
        "Private key of that certificate.",
    ),
    Setting(
        "timeout_s",
        ("TAILSCOPE_TIMEOUT_S",),
        float,
        "seconds",
        10.0,
        "Longest wait for one answer. `OTEL_EXPORTER_OTLP_[TRACES_]TIMEOUT` sets it in milliseconds.",
        (0.05, 300.0),
    ),
    Setting(
        "flush_interval_s",
        ("TAILSCOPE_FLUSH_INTERVAL_S",),
        float,
        "seconds",
        0.05,
        "How long an ended span waits before it is sent; what a killed process can lose. "
        "`OTEL_BSP_SCHEDULE_DELAY` sets it in milliseconds.",
        (0.005, 60.0),
    ),
    Setting(
        "buffer_bytes",
        ("TAILSCOPE_BUFFER_BYTES",),
        int,
        "bytes",
        32 << 20,
        "Encoded spans kept while the collector is away; beyond it the newest requests are dropped.",
        (1 << 16, 1 << 32),
    ),
    Setting(
        "buffer_spans",
        ("TAILSCOPE_BUFFER_SPANS", "OTEL_BSP_MAX_QUEUE_SIZE"),
        int,
        "spans",
        16_384,
        "Ended spans that wait to be encoded, about 0.6 KB each; in the pure core.",
        (64, 1 << 22),
    ),
    Setting(
        "max_attributes",
        ("TAILSCOPE_MAX_ATTRIBUTES", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
        int,
        "count",
        128,
        "Attributes of one span, event or link.",
        (1, 10_000),
    ),
    Setting(
        "max_value_chars",
        (
            "TAILSCOPE_MAX_VALUE_CHARS",
            "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
        ),
        int,
        "characters",
        4096,
        "Longest text of one attribute; longer ones are cut and counted.",
        (1, 1 << 24),
    ),
    Setting(
        "max_events",
        ("TAILSCOPE_MAX_EVENTS", "OTEL_SPAN_EVENT_COUNT_LIMIT"),
        int,
        "count",
        128,
        "Events of one span.",
        (0, 100_000),
    ),
    Setting(
        "max_links",
        ("TAILSCOPE_MAX_LINKS", "OTEL_SPAN_LINK_COUNT_LIMIT"),
        int,
        "count",
        128,
        "Links of one span; the span of a batch links to all its requests.",
        (0, 100_000),
    ),
    Setting(
        "host_signals",
        ("TAILSCOPE_HOST_SIGNALS",),
        yes,
        "`true` or `false`",
        True,
        "Measure what the host does to requests (run queue, throttling, garbage collection, event loop) and "
        "send it as attributes and metrics.",
    ),
    Setting(
        "metrics_interval_s",
        ("TAILSCOPE_METRICS_INTERVAL_S",),
        float,
        "seconds",
        10.0,
        "How often metrics are sent. `OTEL_METRIC_EXPORT_INTERVAL` sets it in milliseconds; "
        "`OTEL_METRICS_EXPORTER=none` sends none.",
        (0.1, 3600.0),
    ),
    Setting(
        "nvtx",
        ("TAILSCOPE_NVTX",),
        yes,
        "`true` or `false`",
        False,
        "Show stages as NVTX ranges, too, so that Nsight Systems has the same names.",
    ),
    Setting(
        "disabled",
        ("TAILSCOPE_DISABLED", "OTEL_SDK_DISABLED"),
        yes,
        "`true` or `false`",
        False,
        "Record nothing: `init` then changes nothing at all. `OTEL_TRACES_EXPORTER=none` does the same.",
    ),
)

TARGET: Final = (
    "endpoint",
    "protocol",
    "headers",
    "certificate",
    "client_certificate",
    "client_key",
    "compression",
)
"""Settings that say where spans go and how."""

BY_NAME: Final = {setting.name: setting for setting in SETTINGS}

OTEL_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
INSECURE: Final = ("OTEL_EXPORTER_OTLP_TRACES_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE")

IN_MILLISECONDS: Final = {
    "timeout_s": ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"),
    "flush_interval_s": ("OTEL_BSP_SCHEDULE_DELAY",),
    "metrics_interval_s": ("OTEL_METRIC_EXPORT_INTERVAL",),
}
"""OpenTelemetry's variables for settings that we have in seconds."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective settings, each with where it came from."""

    service: str
    target: Target
    resource_attributes: Mapping[str, Any]
    timeout_s: float
    flush_interval_s: float
    buffer_bytes: int
    buffer_spans: int
    max_attributes: int
    max_value_chars: int
    max_events: int
    max_links: int
    host_signals: bool
    metrics_interval_s: float
    nvtx: bool
    disabled: bool
    sources: Mapping[str, str] = field(compare=False)
    """Name of each setting: `argument`, the variable, or `default`."""


def resolve(arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
    """Return the effective settings from arguments that are not None, the environment and the defaults."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in SETTINGS:
        values[setting.name], sources[setting.name] = choose(
            setting, arguments.get(setting.name), environment
        )
    for name, variables in IN_MILLISECONDS.items():
        for variable in variables if sources[name] == "default" else ():
            if environment.get(variable):
                read = checked(BY_NAME[name], milliseconds, environment[variable], variable)
                if read is not None:
                    values[name], sources[name] = read, variable
                    break
    if (
        sources["disabled"] == "default"
        and environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    ):
        values["disabled"], sources["disabled"] = True, "OTEL_TRACES_EXPORTER"
    resource = values["resource_attributes"]
    service = values["service"] or resource.get("service.name") or conventions.UNKNOWN_SERVICE
    names = (*TARGET, "service")
    values["headers"] = {key: str(value) for key, value in values["headers"].items()}
    rest = {name: value for name, value in values.items() if name not in names}
    return Settings(service=service, target=target_of(values, sources), sources=sources, **rest)


def choose(setting: Setting, argument: Any, environment: Mapping[str, str]) -> tuple[Any, str]:
    """Return a setting's value and where it came from; an empty variable counts as not set."""
    candidates = [("argument", argument)] if argument is not None else []
    candidates += [(name, environment[name]) for name in setting.environment if environment.get(name)]
    for source, given in candidates:
        specified = setting.name == "endpoint" and source in OTEL_ENDPOINTS
        raw = with_scheme(given, environment) if specified else given
        value = checked(setting, setting.parse, raw, source)
        if value is not None:
            return value, source
    return setting.default, "default"


def with_scheme(address: str, environment: Mapping[str, str]) -> str:
    """Return an address with the scheme that OpenTelemetry gives one without: TLS, unless told otherwise."""
    if "://" in address:
        return address
    plain = any(yes(environment.get(name, "")) for name in INSECURE)
    return f"{'http' if plain else 'https'}://{address.strip()}"


def checked(setting: Setting, parse: Callable[[Any], Any], raw: Any, source: str) -> Any:
    """Return the value read from `raw`, or None after saying why it cannot be."""
    try:
        value = parse(raw)
    except (TypeError, ValueError) as error:
        problem = str(error)
    else:
        if setting.bounds is None or setting.bounds[0] <= value <= setting.bounds[1]:
            return value
        problem = f"want {setting.bounds[0]:g} to {setting.bounds[1]:g}"
    where = f"init({setting.name}=...)" if source == "argument" else source
    _guard.report(
        f"setting:{setting.name}", f"{where} cannot be {raw!r}: {problem}. Tailscope goes on without it"
    )
    return None


def target_of(values: Mapping[str, Any], sources: Mapping[str, str]) -> Target:
    """Put endpoint and protocol together.

    OTLP/HTTP posts to /v1/traces below a general endpoint; the path of OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    and any path that an argument gives, is used as it is.
    """
    endpoint = str(values["endpoint"] or "")
    parts = urlsplit(endpoint)
    protocol = values["protocol"]
    if protocol is None:
        looks_like_http = parts.port == conventions.DEFAULT_HTTP_PORT or parts.path.strip("/")
        protocol = "http/protobuf" if endpoint and looks_like_http else "grpc"
    if not endpoint:
        port = conventions.DEFAULT_GRPC_PORT if protocol == "grpc" else conventions.DEFAULT_HTTP_PORT
        endpoint = f"http://127.0.0.1:{port}"
    if protocol != "grpc":
        general = sources["endpoint"] == "OTEL_EXPORTER_OTLP_ENDPOINT"
        path = urlsplit(endpoint).path
        if general or not path.strip("/"):
            base = endpoint.rstrip("/")
            endpoint = base if path.endswith(TRACES_PATH) else base + TRACES_PATH
    given: dict[str, Any] = {name: values[name] for name in TARGET}
    given["endpoint"], given["protocol"] = endpoint, protocol
    return Target(**given)


def settings_table() -> str:
    """Return every setting as a Markdown table; docs/instrumentation.md holds it and a test compares."""
    lines = ["| argument of `init` | environment | value | default | |", "|---|---|---|---|---|"]
    for setting in SETTINGS:
        names = ", ".join(f"`{name}`" for name in setting.environment)
        value = setting.kind
        if setting.bounds is not None:
            value += f", {setting.bounds[0]:g} to {setting.bounds[1]:.10g}"
        default = "" if setting.default in (None, {}) else f"`{str(setting.default).lower()}`"
        lines.append(f"| `{setting.name}` | {names} | {value} | {default} | {setting.sentence} |")
    return "\n".join(lines)
