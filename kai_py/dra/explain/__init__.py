"""Explanations of allocations that failed, and lists of devices."""
