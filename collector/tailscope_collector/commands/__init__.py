"""The collector's commands: `tailscope serve` and `tailscope import`."""
