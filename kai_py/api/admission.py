"""What do the admission webhooks and the objects that announce them agree on?"""

WEBHOOK_NAME = "kai-py-webhook"
"""Name of the Service, of its Secret, and of the webhook configurations."""
ADMISSION_LABEL = "scheduling.kai.io/admission"
ENABLED = "enabled"
"""Namespaces with the label at this value have defaults for their pods."""

POD_DEFAULTS = "pod-defaults"
POD_GATE = "pod-gate"
QUEUE_RULES = "queue-rules"
KAI_QUEUE_RULES = "kai-queue-rules"
KAI_POD_GROUP_RULES = "kai-pod-group-rules"
"""Paths under which requests are answered."""
