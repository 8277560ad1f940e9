"""Latency and complexity of one decision."""
