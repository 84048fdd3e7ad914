"""A Ray Serve application with every request and every batch traced: `python ray_serve_service.py`.

The collector comes from TAILSCOPE_ENDPOINT, the service's name from TAILSCOPE_SERVICE.
"""

from __future__ import annotations

import os

import ray
from ray import serve

TRACED = {
    # Runs in each worker process of Ray before anything else: tailscope.init() and the integration.
    "worker_process_setup_hook": "tailscope.integrations.ray_serve.setup",
    "env_vars": {key: value for key, value in os.environ.items() if key.startswith("TAILSCOPE_")},
}


@serve.deployment(max_ongoing_requests=32)
class Ranker:
    """Doubles numbers, up to eight at a time."""

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.02)
    async def score(self, rows: list[int]) -> list[int]:
        """Score a batch: each request gets its own `queue` and `inference`."""
        return [row * 2 for row in rows]

    async def __call__(self, row: int) -> int:
        """Score one row."""
        return await self.score(row)


def main() -> None:
    ray.init(runtime_env=TRACED, include_dashboard=False)
    handle = serve.run(Ranker.bind(), name="ranker", route_prefix=None)
    waiting = [handle.remote(row) for row in range(16)]
    print([one.result() for one in waiting])
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
