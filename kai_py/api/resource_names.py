"""Names of resources that pods request."""

BASE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")
"""Those that every node has; names of all others but huge pages have a domain."""


def is_resource(name: str) -> bool:
    """Whether a pod may request a resource of this name."""
    return name in BASE_RESOURCES or name.startswith("hugepages-") or "/" in name
