"""Admission webhooks: defaults for pods, checks of queues and PodGroups."""
