"""Files and formats that are not OTLP over a port: what each means, as export requests."""
