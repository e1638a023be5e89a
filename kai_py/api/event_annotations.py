"""Annotations of the scheduler's events: what their notes say, for programs."""

from kai_py.api.queue import GROUP, QUEUE_NAME_KEY

GANG = f"{GROUP}/gang"
QUEUE = QUEUE_NAME_KEY
ACTION = f"{GROUP}/action"
"""The action of the cycle: allocate, reclaim, preempt, …"""
NODE = f"{GROUP}/node"
STAGE = f"{GROUP}/stage"
"""The stage that stops a gang."""
PREEMPTOR = f"{GROUP}/preemptor"
"""The gang for which pods are evicted."""
PREEMPTOR_QUEUE = f"{GROUP}/preemptor-queue"
