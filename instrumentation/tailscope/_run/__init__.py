"""`tailscope run`: a service records without a change of its code."""
