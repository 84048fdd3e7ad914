"""What each request did on a server, cut at every moment at which one of its spans begins or ends there.

Owns the pieces: when they lie, and what was going on in them. The first piece of a request that was called
begins where the caller's span does, on the caller's clock: what a process owes that does not even begin is
in it. Never judges how long a piece is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

if TYPE_CHECKING:
    from tailscope_analyzer._evidence._evidence import Evidence

ARRIVAL: Final = "arrival"
"""Before the first stage: the request is on its way, or nobody takes it in."""
RETURN: Final = "return"
NO_STAGE: Final = "no stage"
"""Inside the server's span, after its first child began, in no stage."""


def pieces(evidence: Evidence, service: str) -> pl.DataFrame:
    """Return the pieces of all requests on the servers of a service.

    Pieces of no length are there too: without them what hardly ever takes time would seem to take long.
    Columns: `request`, `server`, `start_ns`, `end_ns`, `kind` (what the piece follows: two of a kind are
    alike), `doing` (the stage without sub-stages, NO_STAGE, ARRIVAL or RETURN).
    """
    spans = evidence.spans
    above = spans.select("server", "kind", "within", "start_ns", "end_ns").select(
        pl.all().gather(spans["parent"].clip(0)).name.prefix("above_")
    )
    mine = spans.hstack(above).filter((pl.col("service") == service) & (pl.col("request") >= 0))
    below = pl.col("parent") >= 0
    inside = below & (pl.col("above_server") == pl.col("server"))
    called = below & ~inside & pl.col("above_kind").is_in(["client", "producer"])
    here = pl.col("stage").fill_null("").str.replace(r"\..*", "") + "|" + pl.col("operation")
    # Where the server's span is opened before the process takes the request in, that is arriving, too.
    unstaged = pl.when(inside).then(pl.lit(NO_STAGE)).otherwise(pl.lit(ARRIVAL))
    within = pl.col("within").fill_null(unstaged)
    around = pl.when(inside).then(pl.col("above_within").fill_null(NO_STAGE)).otherwise(pl.lit(RETURN))
    edges = pl.concat(
        [
            _edges(mine, "start_ns", "end_ns", "begin|" + here, within),
            _edges(mine, "end_ns", "start_ns", "end|" + here, around),
            _edges(mine.filter(called), "above_start_ns", "above_end_ns", "call|" + here, pl.lit(ARRIVAL)),
            _edges(mine.filter(called), "above_end_ns", "above_start_ns", "answered|" + here, pl.lit(RETURN)),
        ]
    )
    same = (pl.col("request") == pl.col("request").shift(-1)) & (
        pl.col("server") == pl.col("server").shift(-1)
    )
    return (
        edges.sort("server", "request", "start_ns", pl.col("turn") < 0, "turn", "kind")
        .with_columns(end_ns=pl.when(same).then(pl.col("start_ns").shift(-1)))
        .drop_nulls("end_ns")
    )


def _edges(spans: pl.DataFrame, moment: str, other_end: str, kind: pl.Expr, doing: pl.Expr) -> pl.DataFrame:
    # At one moment spans end before others begin, the inner one first; of those that begin the outer one.
    return spans.select(
        "request",
        "server",
        pl.col(moment).alias("start_ns"),
        (pl.col(moment) - pl.col(other_end)).alias("turn"),
        kind.alias("kind"),
        doing.str.replace(r"\..*", "").alias("doing"),
    )
