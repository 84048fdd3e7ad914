"""The load: the same requests for every version, so that only the code makes a difference."""

from __future__ import annotations

import os

from service import model, predict

import tailscope

WARM_UP = 20


def main() -> None:
    """Warm up without recording, then make the requests."""
    tailscope.init(service="ranker")  # sends to TAILSCOPE_ENDPOINT
    for _ in range(WARM_UP):
        model(["warm", "up"])
    for number in range(int(os.environ.get("REQUESTS", "500"))):
        predict(f"request number {number}")
    tailscope.flush(timeout_s=10)


if __name__ == "__main__":
    main()
