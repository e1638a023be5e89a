"""Scenarios: hours of a cluster in seconds, measured and compared with other policies."""
