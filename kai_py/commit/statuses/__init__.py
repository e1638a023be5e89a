"""Statuses written back: pods, queues, and the objects of each dialect."""
