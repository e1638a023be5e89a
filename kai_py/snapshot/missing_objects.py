"""Objects that pods name and that were not found, and the collections of their kinds."""

from msgspec import Struct

TEMPLATES = "resourceclaimtemplates"
CLAIMS = "resourceclaims"
VOLUME_CLAIMS = "persistentvolumeclaims"
STORAGE_CLASSES = "storageclasses"


class MissingObject(Struct, frozen=True):
    """An object that a pod refers to and that was not found, and the collection of its kind."""

    collection: str
    name: str
