"""A BentoML service with every request traced: `bentoml serve bentoml_service:Doubler`."""

from __future__ import annotations

import time

import bentoml

import tailscope
from tailscope.integrations import bentoml as integration

# Every worker process imports this module, so each begins to record here. The service's name and the
# collector come from TAILSCOPE_SERVICE and TAILSCOPE_ENDPOINT.
tailscope.init()
integration.instrument()


@bentoml.service(traffic={"timeout": 30}, workers=1)
class Doubler:
    """Doubles numbers; negative ones fail."""

    @bentoml.api(batchable=True, max_batch_size=8, max_latency_ms=5000)
    def batched(self, rows: list[int]) -> list[int]:
        """Double each number of a batch."""
        with tailscope.stage("inference.forward"):
            time.sleep(0.02)
        if min(rows) < 0:
            raise ValueError("a negative row")
        return [row * 2 for row in rows]

    @bentoml.api
    def single(self, row: int) -> int:
        """Double one number."""
        with tailscope.stage("inference.forward"):
            time.sleep(0.03)
        return row * 2
