"""Simulation: the scheduler on a cluster in memory, in simulated time."""
