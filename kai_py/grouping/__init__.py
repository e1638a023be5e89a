"""Pods to gangs: who belongs together, in which queue, with which floor."""
