"""Does a change of an owner say anything new? Status and bookkeeping change far more often."""

from kai_py.api.records.core import ObjectMeta, PartialObjectMetadata
from kai_py.api.records.document import Unstructured
from kai_py.api.records.job import Job


def same_owner(old: object, new: object) -> bool:
    """Whether two states of an owner or namespace are alike in everything that is read of them."""
    match old, new:
        case PartialObjectMetadata(), PartialObjectMetadata():
            return _relevant_metadata(old.metadata) == _relevant_metadata(new.metadata)
        case Unstructured(), Unstructured():
            return old.content == new.content and _relevant_metadata(
                old.metadata
            ) == _relevant_metadata(new.metadata)
        case Job(), Job():
            return _relevant_job_parts(old) == _relevant_job_parts(new)
    return False


def _relevant_job_parts(job: Job) -> tuple[object, ...]:
    return job.spec, job.status.succeeded, _relevant_metadata(job.metadata)


def _relevant_metadata(meta: ObjectMeta) -> tuple[object, ...]:
    return meta.uid, meta.labels, meta.annotations, meta.owner_references, meta.deletion_timestamp
