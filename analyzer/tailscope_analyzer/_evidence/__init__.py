"""What is known of each request: the facts that attributes, causes and mixes are found in.

Owns one frozen `Evidence` per report, made by `gather`. It never judges: what a fact means is said by who
reads it.

Order. Every array and frame here has one row per request, in the order of `Evidence.requests`: counted
requests of a weight above 0, by start, then trace id. `spans.request` points to these rows.

Facts. `Evidence.facts` has these columns; a null is "not known":

=================================  =======================================================================
`KEY` (has no colon)               attribute KEY as instrumentation sent it: of the entry span, else of the
                                   earliest span below that has it. Float64 where each value is a number and
                                   the key's last word names no identity (id, version, hash...); else String
`request:service` `:operation`     String, of the entry
`request:model` `:version`         String, as in the view `requests`
`request:instance`                 String, of the entry
`request:server`                   String `service/instance`: who did the work, that is the first span of
                                   stage inference, else the entry
`instance:SERVICE`                 String, instance of that service's first span, where it has several
`request:status` `:http_status`    String
`request:input_tokens`             Float64; and `:output_tokens`, `:batch_size`
`request:started_s`                Float64, seconds since the first request
`request:arrived_s`                Float64, the same for the first span on the server
`request:inflight`                 Float64, other requests in the server when this one arrived there
`request:idle_ms`                  Float64, ms for which the server had had no request on arrival; 0 where
                                   one was in flight; null of the server's first
`nth:KEY` `first:KEY`              Float64, Boolean: the how-manieth request on this server with this value
                                   of KEY (1 is the first; by arrival); of keys whose values repeat, and of
                                   request:model and request:version
`changed:KEY`                      Boolean: the previous request on this server had another value; null of
                                   the server's first
`batch:size`                       Float64, requests that share batch.id on a server, or a batch span's links
`batch:position`                   Float64, the 1-based place in the batch by arrival
`batch:largest_tokens`             Float64, most input tokens of any in the batch
`load:model_ms` `load:lora_ms`     Float64, ms of the request during which a model.load or lora.load of
                                   another trace ran on its server
`event:NAME` `event_ms:NAME`       Float64, how many events of this name the spans carry, and the sum of the
                                   ms that they state (an attribute whose name ends in `_ms`)
`calls:CALLER -> CALLEE`           Float64, calls (CLIENT or PRODUCER spans) to that peer or service
`ms:SERVICE|STAGE|CATEGORY`        Float64, ledger time in ms, of all rows together the duration
=================================  =======================================================================

Weights. `tail_weight` and `typical_weight` are the report's own weights of each request and sum to 1: the
excess of any per-request quantity x is `evidence.excess(x) == (tail_weight - typical_weight) @ x`.

Large windows. Above MOST_REQUESTS only a choice of requests is here: whole stretches of time and all of the
slowest; `Evidence.chosen` says so and the weights are corrected.
"""

from __future__ import annotations

from tailscope_analyzer._evidence._evidence import Evidence
from tailscope_analyzer._evidence._gather import gather

__all__ = ["Evidence", "gather"]
