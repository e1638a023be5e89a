"""Victims of preemption, reclaim and consolidation: candidates, search, relocation."""
