"""Which queue does a pod belong to, and in whose words was that said?

The group object that the pod names, the pod, its owners from the nearest to the top, and the
namespace are asked in this order; the
first that names a queue decides. On one object our own key goes before those of dialects, and an
annotation before a label. Whoever addresses a queue in KAI's words also gets KAI's defaults, for
example a Job whose floor is 1.
"""

from dataclasses import dataclass
from enum import StrEnum

from kai_py.api.records.core import ObjectMeta
from kai_py.grouping.owner_chain import OwnerChain
from kai_py.grouping.owners import Owners


class Defaults(StrEnum):
    """Whose defaults a workload gets where it says nothing itself."""

    NATIVE = "native"
    KAI = "kai"


@dataclass(frozen=True, slots=True)
class QueueKey:
    """A label or annotation that names a queue."""

    key: str
    defaults: Defaults = Defaults.NATIVE


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """A queue's name, empty when nothing names one.

    ``disregarded``: the label that names another queue than the annotation beside it, if any.
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
            torn = ""
            if annotated and labelled and annotated != labelled:
                torn = f'label {each.key} "{labelled}", the annotation says "{annotated}"'
            return QueueChoice(name, each.defaults, torn)
    return None
