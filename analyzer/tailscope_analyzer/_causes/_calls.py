"""What calls to others cost: retries, setting up connections, a slow peer, and the way between.

Owns retries, connection_setup, slow_dependency and network_delay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import RETRY_COUNT, RETRY_EVENT
from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of, quoted
from tailscope_analyzer._causes._contrast import contrast
from tailscope_analyzer._causes._outliers import outliers
from tailscope_analyzer._causes._stated import FELT, sql_of_keys

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools
    from tailscope_analyzer._evidence import Evidence

CONNECTS: Final = r"(?i)^(network|tls|tcp|dns|ssl|http)?[._ ]?(connect|handshake|lookup|resolve)$"
"""Names of spans that set up a connection: `network.connect`, `tls.connect` and their like."""
HTTP_STATUS: Final = ("http.response.status_code", "http.status_code")
COUNTS: Final = (RETRY_COUNT, "http.request.resend_count")
LEAST_FAILURE: Final = 400
"""HTTP statuses from here on are failures, whether or not the span says `error`."""


def _differing(evidence: Evidence, struck: Bools) -> list[int]:
    """Return the parts on which struck requests spend noticeably more than the others, on average."""
    more = np.asarray(evidence.matrix[struck].mean(axis=0) - evidence.matrix[~struck].mean(axis=0)).ravel()
    return [int(at) for at in np.flatnonzero(more > FELT * max(float(more[more > 0].sum()), 1e-12))]


def _retries(evidence: Evidence) -> list[Claim]:
    counts = [np.nan_to_num(evidence.number(fact)) for fact in (*COUNTS, f"event:{RETRY_EVENT}")]
    struck, again = np.sum(counts, axis=0) > 0, _called_again(evidence)
    direct = bool(struck.any())
    struck = struck if direct else again
    if not struck.any() or struck.all():
        return []
    columns = _differing(evidence, struck)
    compared = contrast(evidence.ms(columns), struck) if columns else None
    if compared is None:
        return []
    # All of it beyond a typical request: what the last attempt takes is ordinary, and stays.
    spread, ms = claim_of(evidence, columns, np.where(struck, evidence.ms(columns), 0.0))
    part = evidence.parts[spread[0]]
    return [
        Claim(
            cause="retries",
            columns=spread,
            ms=ms,
            support="direct" if direct else "inferred",
            confidence="confirmed" if direct else "likely",
            summary=f"{compared.struck:,} requests try again in {part.service}: attempts that fail, and "
            f"the pauses "
            "between them, take the time.",
            proofs=(
                Proof(
                    f"Those that try again spend {compared.struck_ms:,.0f} ms there (median), the others "
                    f"{compared.others_ms:,.0f} ms.",
                    sql_of_keys(COUNTS)
                    if direct
                    else "select trace_id, operation, count(*) as calls from spans where kind = 'client' and "
                    "(status = 'error' or try_cast(attributes['http.response.status_code'] as double) "
                    ">= 400) group by all order by calls desc limit 100",
                ),
            ),
            p_value=compared.p_value,
            rank=8 if direct else 18,
            struck=struck,
        )
    ]


def _called_again(evidence: Evidence) -> Bools:
    """Tell which requests make a call again that has failed: the same operation and peer, first an error."""
    refused = (
        evidence.attributes.filter(pl.col("key").is_in(HTTP_STATUS))
        .filter(pl.col("value").cast(pl.Float64, strict=False) >= LEAST_FAILURE)["span"]
        .unique()
    )
    calls = evidence.spans.with_row_index("span").filter(
        (pl.col("kind") == "client") & (pl.col("request") >= 0)
    )
    failed = (pl.col("status") == "error") | pl.col("span").cast(pl.Int64).is_in(refused.implode())
    again = (
        calls.sort("start_ns")
        .group_by("request", "parent", "service", "operation", "peer", maintain_order=True)
        .agg(calls=pl.len(), failed=failed.slice(0, pl.len() - 1).all())
        .filter((pl.col("calls") > 1) & pl.col("failed"))
    )
    found = np.zeros(len(evidence), dtype=bool)
    found[again["request"].to_numpy()] = True
    return found


def _connections(evidence: Evidence) -> list[Claim]:
    made = evidence.spans.filter((pl.col("request") >= 0) & pl.col("operation").str.contains(CONNECTS))
    if not len(made):
        return []
    setup = made.group_by("request").agg(((pl.col("end_ns") - pl.col("start_ns")).sum() / 1e6).alias("ms"))
    spent = np.zeros(len(evidence))
    spent[setup["request"].to_numpy()] = setup["ms"].to_numpy()
    struck = spent > np.median(spent)
    # Beneath a call the time is the connecting span's own, in whatever stage the call belongs to.
    callers = set(made["service"])
    columns = (
        [at for at in _differing(evidence, struck) if evidence.parts[at].service in callers]
        if struck.any()
        else []
    )
    compared = contrast(evidence.ms(columns), struck) if columns else None
    if compared is None:
        return []
    spread, ms = claim_of(evidence, columns, np.where(struck, spent, 0.0))
    return [
        Claim(
            cause="connection_setup",
            columns=spread,
            ms=ms,
            support="direct",
            confidence="confirmed",
            summary=f"{compared.struck:,} requests set up a connection first "
            f"({np.median(spent[struck]):,.0f} ms, "
            "median): connections are not kept.",
            proofs=(
                Proof(
                    f"With a connection to set up their calls take {compared.struck_ms:,.0f} ms "
                    f"(median), without "
                    f"{compared.others_ms:,.0f} ms.",
                    "select trace_id, service, operation, duration_ms from spans where "
                    f"regexp_matches(operation, {quoted(CONNECTS)}) order by duration_ms desc limit 100",
                ),
            ),
            p_value=compared.p_value,
            rank=11,
            struck=struck,
        )
    ]


def _slow_between(evidence: Evidence, category: str, cause: str, rank: int) -> list[Claim]:
    """Claim the time of calls, or of the way to callees, that is far beyond its ordinary spread."""
    pairs = sorted({(p.service, p.callee) for p in evidence.parts if p.category == category})
    claims: list[Claim] = []
    for service, callee in pairs:
        columns = [
            at
            for at in evidence.columns(service=service, category=category)
            if evidence.parts[at].callee == callee
        ]
        # By the call: more calls are retries or a loop, not a slow peer.
        calls = np.nan_to_num(evidence.number(f"calls:{service} -> {callee}"))
        calls = np.maximum(calls, 1.0)
        far = outliers(evidence.ms(columns) / calls)
        if far is None:
            continue
        spread, ms = claim_of(evidence, columns, far.beyond_ms * calls)
        peer, count = callee or "others", int(far.struck.sum())
        said = (
            f"A call of {service} to {peer} takes {far.struck_ms:,.0f} ms in {count:,} requests, "
            f"{far.usual_ms:,.1f} ms usually."
            if category == "dependency"
            else f"Between {service} and {peer} {count:,} requests lose {far.struck_ms:,.1f} ms that no span "
            f"of either explains; usually it is {far.usual_ms:,.2f} ms."
        )
        claims.append(
            Claim(
                cause=cause,
                columns=spread,
                ms=ms,
                support="inferred",
                confidence="likely",
                summary=said,
                proofs=(
                    Proof(
                        f"They are beyond four standard deviations of the others, {far.struck_ms:,.1f} "
                        f"against "
                        f"{far.usual_ms:,.2f} ms.",
                        f"select trace_id, operation, self_ms from stages where category = "
                        f"{quoted(category)} and "
                        f"service = {quoted(service)} order by self_ms desc limit 100",
                    ),
                ),
                p_value=min(1.0, far.p_value * len(pairs)),
                rank=rank,
                struck=far.struck,
            )
        )
    return claims


def _dependency(evidence: Evidence) -> list[Claim]:
    return _slow_between(evidence, "dependency", "slow_dependency", 50)


def _network(evidence: Evidence) -> list[Claim]:
    return _slow_between(evidence, "gap", "network_delay", 50)


DETECTORS: Final = (
    Detector(
        cause="retries",
        looks_for="`retry.count` or `retry` events; or the same call again after one that failed.",
        not_confused_with=(
            ("slow_dependency", "one attempt alone takes long"),
            ("queueing", "nothing is repeated"),
        ),
        fixes=(
            Fix(
                "Retry in one place only, with a budget; fall back before the back-off grows.",
                "https://github.com/BerriAI/litellm/issues/3274",
            ),
            Fix("Look at the client's side, too: its own retries are not the server's time.", GUIDE_A),
        ),
        detect=_retries,
    ),
    Detector(
        cause="connection_setup",
        looks_for="spans that set up connections (`tls.connect` and its like) on slow requests.",
        not_confused_with=(
            ("cold_start", "the server itself is new"),
            ("network_delay", "the connection is there, the way is slow"),
        ),
        fixes=(Fix("Keep connections alive and pooled; warm them up after idle time.", GUIDE_A),),
        detect=_connections,
    ),
    Detector(
        cause="slow_dependency",
        looks_for="calls to somebody who sends no spans, far beyond the spread of the faster ones.",
        not_confused_with=(
            ("retries", "the call is repeated"),
            ("connection_setup", "spans say that a connection was set up"),
        ),
        fixes=(
            Fix("Spikes that follow another service are a dependency: look there first.", GUIDE_A),
            Fix("Cache its answers, bound the wait, or take it off the request's path.", GUIDE_A),
        ),
        detect=_dependency,
    ),
    Detector(
        cause="network_delay",
        looks_for="time between a caller's and a callee's span, far beyond the spread of the faster "
        "requests.",
        not_confused_with=(
            ("cpu_throttling", "both ends share a host"),
            ("event_loop_blocked", "the wait is inside the callee's span"),
        ),
        fixes=(
            Fix(
                "A floor of 40 ms is Nagle's algorithm with delayed acknowledgement: set TCP_NODELAY.",
                "https://github.com/y-scope/spider/pull/459",
            ),
            Fix("Measure the path (ping, mtr); bring servers nearer, or use a CDN.", GUIDE_A),
        ),
        detect=_network,
    ),
)
