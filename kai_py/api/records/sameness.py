"""Does a change of an owner say anything new? Status and bookkeeping change far more often."""

from kai_py.api.records.core import ObjectMeta, ObjectMetadata
from kai_py.api.records.document import Document
from kai_py.api.records.job import Job


def same_owner(old: object, new: object) -> bool:
    """Whether two states of an owner or namespace are alike in everything that is read of them."""
    match old, new:
        case ObjectMetadata(), ObjectMetadata():
            return _read(old.metadata) == _read(new.metadata)
        case Document(), Document():
            return old.content == new.content and _read(old.metadata) == _read(new.metadata)
        case Job(), Job():
            return _read_of_job(old) == _read_of_job(new)
    return False


def _read_of_job(job: Job) -> tuple[object, ...]:
    return job.spec, job.status.succeeded, _read(job.metadata)


def _read(meta: ObjectMeta) -> tuple[object, ...]:
    return meta.uid, meta.labels, meta.annotations, meta.owner_references, meta.deletion_timestamp
