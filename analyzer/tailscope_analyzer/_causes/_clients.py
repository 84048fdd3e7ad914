"""Whoever calls us is slow: the server waits for the client's body, or for the client to take the answer.

Owns client_side. Only time that a server says it waited for its client counts; a large body is large_payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of, quoted
from tailscope_analyzer._causes._contrast import contrast
from tailscope_analyzer._causes._stated import ELSEWHERE, FELT

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._evidence import Evidence

WAITS: Final = r"(?i)(^network[._](receive|send)|\bhttp (receive|send)|\b(read|receive|write|send)[._ ]body)$"
"""Names of spans in which a server waits for its client: ours, and those of OpenTelemetry's ASGI package."""
SEND_MS: Final = "response.send_ms"
SIZES: Final = ("http.request.body.size", "response.body.bytes", "http.response.body.size")
SAME_SIZE: Final = 2.0
"""Bodies so many times as large take longer by themselves: then it is the payload, not the client."""


def _slow_clients(evidence: Evidence) -> list[Claim]:
    spans = evidence.spans.filter((pl.col("request") >= 0) & pl.col("operation").str.contains(WAITS))
    waited = _summed(evidence, spans) + _stated(evidence)
    struck = waited - np.median(waited) > FELT * evidence.excess_ms
    if not struck.any() or struck.all() or _is_the_payload(evidence, struck):
        return []
    services = set(spans["service"]) or set(evidence.facts["request:service"].drop_nulls())
    columns = [
        at
        for at, part in enumerate(evidence.parts)
        if part.service in services and part.category not in ELSEWHERE
    ]
    compared = contrast(evidence.ms(columns), struck)
    if compared is None:
        return []
    spread, ms = claim_of(evidence, _waiting(evidence, columns), np.where(struck, waited, 0.0))
    names = ", ".join(sorted(services))
    return [
        Claim(
            cause="client_side",
            columns=spread,
            ms=ms,
            support="direct",
            confidence="confirmed",
            summary=f"{names} waits for slow clients: {compared.struck:,} requests spend "
            f"{np.median(waited[struck]):,.0f} ms (median) until the client has sent its body or taken the "
            "answer.",
            proofs=(
                Proof(
                    f"They take {compared.struck_ms:,.1f} ms in {names} (median), the others "
                    f"{compared.others_ms:,.1f} ms; their bodies are not larger.",
                    "select trace_id, service, operation, duration_ms, attributes from spans where "
                    f"regexp_matches(operation, {quoted(WAITS)}) or "
                    f"try_cast(attributes['{SEND_MS}'] as double) > 0 order by duration_ms desc limit 100",
                ),
            ),
            p_value=compared.p_value,
            rank=12,
            struck=struck,
        )
    ]


def _waiting(evidence: Evidence, columns: list[int]) -> list[int]:
    """Return the parts in which a server can have waited for a client: of the network, or of no stage."""
    return [at for at in columns if evidence.parts[at].stage.startswith(("network", "other"))] or columns


def _summed(evidence: Evidence, spans: pl.DataFrame) -> Floats:
    took = spans.group_by("request").agg(((pl.col("end_ns") - pl.col("start_ns")).sum() / 1e6).alias("ms"))
    waited = np.zeros(len(evidence))
    waited[took["request"].to_numpy()] = took["ms"].to_numpy()
    return waited


def _stated(evidence: Evidence) -> Floats:
    """Return the time of sending that no span shows."""
    sends = evidence.spans.filter(
        (pl.col("request") >= 0) & pl.col("operation").str.contains(r"(?i)\b(send|write)\b")
    )
    stated: Floats = np.nan_to_num(evidence.number(SEND_MS))
    return np.maximum(stated - _summed(evidence, sends), 0.0)


def _is_the_payload(evidence: Evidence, struck: Bools) -> bool:
    """Tell whether the struck have far larger bodies than the others."""
    for key in SIZES:
        size = evidence.number(key)
        mine, theirs = size[struck & np.isfinite(size)], size[~struck & np.isfinite(size)]
        if len(mine) and len(theirs) and np.median(mine) > SAME_SIZE * np.median(theirs):
            return True
    return False


DETECTORS: Final = (
    Detector(
        cause="client_side",
        looks_for="spans in which the server waits for its client (`network.receive`, `network.send`, "
        "`http receive`, `http send`), or `response.send_ms`, on slow requests whose bodies are not larger.",
        not_confused_with=(
            ("large_payload", "the body is larger than that of others"),
            ("network_delay", "between two services that both send spans"),
            ("slow_dependency", "we are the client, and somebody else is slow"),
        ),
        fixes=(
            Fix(
                "Put a proxy that buffers bodies in front; give slow clients a time limit.",
                GUIDE_A,
            ),
            Fix("Look at the client: its network, its retries, what it does between reads.", GUIDE_A),
            Fix("Serve from nearer to it (CDN, other region): 20-40 % less time on the network.", GUIDE_A),
        ),
        detect=_slow_clients,
    ),
)
