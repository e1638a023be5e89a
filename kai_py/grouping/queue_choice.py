"""The choice of a pod's queue, and of the defaults that apply with it.

The group object that the pod names, the pod, its owners from the nearest to the top, and the
namespace are consulted in this order; the first that names a queue decides. On one object our own
key takes precedence over those of dialects, and an annotation over a label. A workload that names
its queue with KAI's key also gets KAI's defaults, for example a minMember of 1 for a Job.
"""

from enum import StrEnum

from msgspec import Struct

from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.owner_chain import OwnerChain, Owners


class Defaults(StrEnum):
    """Whose defaults a workload gets where it says nothing itself."""

    NATIVE = "native"
    KAI = "kai"


class QueueKey(Struct, frozen=True):
    """A label or annotation that names a queue."""

    key: str
    defaults: Defaults = Defaults.NATIVE


class QueueChoice(Struct, frozen=True):
    """A queue's name, empty when nothing names one.

    ``ignored_marker``: the label that names another queue than the annotation beside it, if any.
    """

    name: str = ""
    defaults: Defaults = Defaults.NATIVE
    ignored_marker: str = ""


def choose_queue(
    chain: OwnerChain, owners: Owners, keys: tuple[QueueKey, ...], default: QueueChoice
) -> QueueChoice:
    """The queue of a pod; ``default`` when nothing names one."""
    for meta in chain.metadata_sources:
        named = _queue_named_by(meta, keys)
        if named is not None:
            return named
    namespace = owners.namespace(chain.pod.metadata.namespace)
    named = _queue_named_by(namespace.metadata, keys) if namespace is not None else None
    return named or default


def _queue_named_by(meta: ObjectMeta, keys: tuple[QueueKey, ...]) -> QueueChoice | None:
    for each in keys:
        annotated, labelled = meta.annotations.get(each.key), meta.labels.get(each.key)
        name = annotated or labelled
        if name:
            conflict = ""
            if annotated and labelled and annotated != labelled:
                conflict = f'label {each.key} is "{labelled}", the annotation is "{annotated}"'
            return QueueChoice(name, each.defaults, conflict)
    return None
