"""Names that the admission webhooks share with the objects that register them."""

WEBHOOK_NAME = "kai-py-webhook"
"""Name of the Service, of its Secret, and of the webhook configurations."""
ADMISSION_LABEL = "scheduling.kai.io/admission"
ENABLED = "enabled"
"""Pods get defaults in namespaces whose label has this value."""

POD_DEFAULTS = "pod-defaults"
POD_GATE = "pod-gate"
QUEUE_RULES = "queue-rules"
KAI_QUEUE_RULES = "kai-queue-rules"
KAI_POD_GROUP_RULES = "kai-pod-group-rules"
"""URL paths of the webhooks."""
