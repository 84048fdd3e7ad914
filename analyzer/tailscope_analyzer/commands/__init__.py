"""The subcommands of `tailscope` that the analyzer brings: report, trace, sql."""
