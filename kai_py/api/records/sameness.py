"""Does a change of an owner say anything new? Status and bookkeeping change far more often."""

from kai_py.api.records.core import ObjectMeta, ObjectMetadata
from kai_py.api.records.document import Document


def same_owner(old: object, new: object) -> bool:
    """Whether two states of an owner or namespace are alike in everything that is read of them."""
    match old, new:
        case ObjectMetadata(), ObjectMetadata():
            return _read(old.metadata) == _read(new.metadata)
        case Document(), Document():
            return old.content == new.content and _read(old.metadata) == _read(new.metadata)
    return False


def _read(meta: ObjectMeta) -> tuple[object, ...]:
    return meta.uid, meta.labels, meta.annotations, meta.owner_references, meta.deletion_timestamp
