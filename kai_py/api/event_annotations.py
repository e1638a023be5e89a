"""What do events of the scheduler say to programs? Annotations, beside the sentence for people."""

from kai_py.api.queue import GROUP, QUEUE_NAME_KEY

GANG = f"{GROUP}/gang"
QUEUE = QUEUE_NAME_KEY
ACTION = f"{GROUP}/action"
"""The action of the cycle: allocate, reclaim, preempt, …"""
NODE = f"{GROUP}/node"
STAGE = f"{GROUP}/stage"
"""What stops a gang."""
PREEMPTOR = f"{GROUP}/beneficiary"
"""The gang that takes the room."""
PREEMPTOR_QUEUE = f"{GROUP}/beneficiary-queue"
