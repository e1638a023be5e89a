"""Unschedulable reasons: why pods could not be placed."""
