"""Invalid pods: those that could not be derived in full still count with what can be read of them.

Such a pod is a gang of its own that is not placed. On a node it takes what its containers request,
as far as the amounts can be read, and its queue is charged with it. Where some cannot be read, its
node takes no more pods of ours while it runs there. The devices of its claims are counted by the
claims.
"""

from msgspec.structs import replace

from kai_py.api.quantity import QuantityError
from kai_py.api.queue import QUEUE_NAME_KEY
from kai_py.api.records.core import Container, Pod, PodSpec, ResourceRequirements
from kai_py.api.records.partial import has_unreadable_requests
from kai_py.api.records.record import QuantityText
from kai_py.grouping.gang import GangSpec, Owner, Subgroup
from kai_py.grouping.pod_template import annotation_or_label
from kai_py.snapshot.pod_demand import PodDemand
from kai_py.snapshot.resources import amount
from kai_py.snapshot.shape import ShapeTable
from kai_py.snapshot.tables.claims import PodClaims


def invalid_demand(pod: Pod, shapes: ShapeTable, problem: str) -> PodDemand:
    """The readable requests of ``pod`` and nothing else; ``problem`` says why."""
    containers = tuple(
        Container(resources=ResourceRequirements(requests=_readable(each.resources)))
        for each in (*pod.spec.containers, *pod.spec.init_containers)
    )
    readable = replace(pod, spec=PodSpec(containers=containers))
    listed = [each.resources for each in (*pod.spec.containers, *pod.spec.init_containers)]
    counted = (each.resources.requests for each in containers)
    complete = all(
        got.keys() == {**each.limits, **each.requests}.keys()
        for got, each in zip(counted, listed, strict=True)
    )
    closes = not complete or has_unreadable_requests(pod)
    shape = shapes.intern(readable)
    return PodDemand(shape, PodClaims(), None, problem=problem, closes_node=closes)


def invalid_gang(pod: Pod, problem: str) -> GangSpec:
    """A gang of ``pod`` alone, in the queue that it names itself."""
    meta = pod.metadata
    return GangSpec(
        key=f"{meta.namespace}/Pod/{meta.name}",
        owner=Owner("v1", "Pod", meta.namespace, meta.name, meta.uid),
        queue=annotation_or_label(meta, QUEUE_NAME_KEY),
        tree=Subgroup(min_members=1),
        problem=f"pod {meta.namespace}/{meta.name}: {problem}",
    )


def _readable(resources: ResourceRequirements) -> dict[str, QuantityText]:
    listed = {**resources.limits, **resources.requests}
    return {name: text for name, text in listed.items() if _is_readable(name, text)}


def _is_readable(name: str, text: QuantityText) -> bool:
    try:
        amount(name, text)
    except QuantityError:
        return False
    return True
