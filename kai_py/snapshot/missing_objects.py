"""Objects that pods name and that were not found, and the collections of their kinds."""

from dataclasses import dataclass

TEMPLATES = "resourceclaimtemplates"
CLAIMS = "resourceclaims"
VOLUME_CLAIMS = "persistentvolumeclaims"
STORAGE_CLASSES = "storageclasses"


@dataclass(frozen=True, slots=True)
class MissingObject:
    """An object that a pod refers to and that was not found, and the collection of its kind."""

    collection: str
    name: str
