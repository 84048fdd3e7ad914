"""Who may come in, and how much of them at a time: tokens, TLS, names, heads, connections, memory."""
