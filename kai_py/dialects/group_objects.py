"""Group objects of other schedulers: a pod names one, and it says how many pods start together.

All are read alike: the object is looked up by name in the pod's namespace; while it is not there
its pods wait. Its queue, where it names one, goes before what the pod and its owners say.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.core import ObjectMeta
from kai_py.api.records.document import Document
from kai_py.dialects.kai.keys import QUEUE
from kai_py.grouping.blueprint import Unusable
from kai_py.grouping.counts import count_at
from kai_py.grouping.explicit import pod_owner
from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.grouping.lineage import Lineage
from kai_py.grouping.marks import marked
from kai_py.grouping.owners import Owners
from kai_py.grouping.sources import Asked, Source


@dataclass(frozen=True, slots=True)
class Form:
    """How one scheduler writes groups.

    ``mark`` and ``name``: what on the pod names a group, and the group's name. ``part`` splits a
    group into several gangs, ``leaf`` names the pod's leaf in the tree. ``tree`` raises Unusable
    for an object that makes no sense.
    """

    kind: str
    collection: str
    mark: Callable[[Lineage], str]
    name: Callable[[Lineage], str]
    tree: Callable[[Document, Lineage], Subgroup]
    part: Callable[[Lineage], str] = lambda _lineage: ""
    leaf: Callable[[Lineage, Subgroup], str] = lambda _lineage, _tree: ""
    queue: str = ""
    """Path of the field that names its queue, empty if it has none."""


def source(form: Form) -> Source:
    """The source for groups of ``form``."""
    return Source(
        mark=form.mark,
        gang=lambda asked: gang_of(form, asked),
        metas=lambda lineage, owners: _metas(form, lineage, owners),
    )


def gang_of(form: Form, asked: Asked) -> GangSpec:
    """The gang of the pod in question, as the object that it names says."""
    lineage = asked.lineage
    namespace, name = lineage.pod.metadata.namespace, form.name(lineage)
    found = asked.owners.named(form.collection, namespace, name)
    key = f"{namespace}/{form.kind}/{name}"
    if not isinstance(found, Document):
        return GangSpec(
            key=key,
            owner=pod_owner(lineage),
            queue=asked.queue.name,
            tree=Subgroup(min_members=1),
            problem=f"{form.kind} {namespace}/{name}, named by {form.mark(lineage)}, "
            "does not exist (yet)",
        )
    part = form.part(lineage)
    tree, problem = Subgroup(min_members=1), ""
    try:
        tree = form.tree(found, lineage)
    except Unusable as error:
        problem = f"{form.kind} {namespace}/{name}: {error}"
    meta = found.metadata
    return GangSpec(
        key=f"{key}/{part}" if part else key,
        owner=Owner(found.api_version, found.kind, namespace, name, meta.uid),
        queue=_queue(form, found, meta) or asked.queue.name,
        tree=tree,
        leaf=form.leaf(lineage, tree),
        problem=problem,
    )


def _metas(form: Form, lineage: Lineage, owners: Owners) -> tuple[ObjectMeta, ...]:
    found = owners.named(form.collection, lineage.pod.metadata.namespace, form.name(lineage))
    return (found.metadata,) if isinstance(found, Document) else ()


def min_member_tree(found: Document, _lineage: Lineage) -> Subgroup:
    """A gang of ``spec.minMember`` pods, whichever."""
    return Subgroup(min_members=count_at(found.content, "spec.minMember", 1))


def _queue(form: Form, found: Document, meta: ObjectMeta) -> str:
    said = marked(meta, QUEUE_NAME_KEY) or marked(meta, QUEUE)
    return said or (str(found.first_at(form.queue) or "") if form.queue else "")
