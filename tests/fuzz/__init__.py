"""Fuzzing of what the collector reads: `python -m tests.fuzz TARGET --minutes 10`."""

TARGETS = ("protobuf", "json", "zipkin", "metrics", "http", "grpc")
