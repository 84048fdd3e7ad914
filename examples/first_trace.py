"""The five lines of the README, around a model that takes its time.

Run it with a collector on this machine (`tailscope serve`), then ask: tailscope sql "select * from stages".
"""

import time

import tailscope


def model(text: str) -> str:
    """Stand in for something slow."""
    time.sleep(0.02)
    return text.upper()


tailscope.init(service="ranker")


@tailscope.request
def predict(text: str) -> str:
    """Answer one request."""
    with tailscope.stage("inference"):
        return model(text)


print(predict("why is it slow?"))
tailscope.flush(timeout_s=2)
