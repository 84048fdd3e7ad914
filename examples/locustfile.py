"""A load test whose requests begin traces: `locust -f locustfile.py --headless -u 20 -r 5 -t 30s -H URL`."""

from __future__ import annotations

from locust import HttpUser, constant_pacing, task

import tailscope
from tailscope.integrations import locust as integration

tailscope.init(service="loadtest")
integration.instrument()


class Caller(HttpUser):
    """Asks once every 100 ms."""

    wait_time = constant_pacing(0.1)

    @task
    def predict(self) -> None:
        """Send one request."""
        self.client.post("/predict", json={"row": 1}, name="predict")
