"""Kubernetes' own lists of work for schedulers (scheduler_perf), by both schedulers."""
