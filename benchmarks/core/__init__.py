"""Deciding: from a cluster in memory to a plan, without an API."""
