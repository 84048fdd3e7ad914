"""Tailscope."""
