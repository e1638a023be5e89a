"""Limits of nodes beside their resources: ports, NUMA zones, volumes, shared GPUs."""
