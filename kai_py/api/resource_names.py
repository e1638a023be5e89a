"""Names of resources that containers may request: standard ones, or others with a domain.

Source: k8s.io/kubernetes pkg/apis/core/validation (``validateContainerResourceName``).
"""

STANDARD = ("cpu", "memory", "ephemeral-storage")
HUGE_PAGES = "hugepages-"


def is_of_containers(resource: str) -> bool:
    """Whether an API server accepts requests of a container for the resource."""
    return "/" in resource or resource in STANDARD or resource.startswith(HUGE_PAGES)
