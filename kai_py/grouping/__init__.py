"""Grouping of pods into gangs, each with its queue and its minMember."""
