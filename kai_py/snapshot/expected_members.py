"""Members of a gang for the pods that its framework creates later.

Each pod of the gang says what they are like, and they may be of thousands of subgroups. So what is
made from one template is computed once, and pods that say the same share one tuple.
"""

from msgspec import Struct, structs

from kai_py.api.bounded import remember
from kai_py.api.records.core import Pod
from kai_py.api.records.resource import ResourceClaim
from kai_py.api.references import PodRef
from kai_py.grouping.gang import ExpectedPods
from kai_py.snapshot.accounting import Accounting
from kai_py.snapshot.charges import charge
from kai_py.snapshot.dependencies import RecordingOwners
from kai_py.snapshot.derived_pod import ExpectedMembers
from kai_py.snapshot.gangs import Member, PodState
from kai_py.snapshot.placeholders import expected_claims
from kai_py.snapshot.pod_demand import pod_demand
from kai_py.snapshot.shape import ShapeTable
from kai_py.snapshot.tables.gpu_nodes import GpuMemory

MAX_KNOWN = 64
"""Gangs of which the members are kept: their pods are read one after the other."""


class _Known(Struct, frozen=True):
    """The ``members`` for ``expected``; ``made``: one for each template."""

    expected: tuple[ExpectedPods, ...]
    made: tuple[Member, ...]
    members: tuple[ExpectedMembers, ...]


class ExpectedMemberTable:
    """Makes the members, and keeps those of the last gangs."""

    def __init__(self, shapes: ShapeTable, gpu_memory: GpuMemory) -> None:
        """No gang is known."""
        self._shapes = shapes
        self._gpu_memory = gpu_memory
        self._known: dict[int, _Known] = {}

    def members(
        self, expected: tuple[ExpectedPods, ...], owners: RecordingOwners, accounting: Accounting
    ) -> tuple[ExpectedMembers, ...]:
        """Members for ``expected``; ``owners`` records what they depend on."""
        if not expected:
            return ()
        templates = {id(each.pod): each.pod for each in expected}
        made = {key: self._member(pod, owners, accounting) for key, pod in templates.items()}
        known = self._known.get(id(expected))
        if known is not None and known.expected is expected and known.made == tuple(made.values()):
            return known.members
        members = tuple(
            ExpectedMembers(each.count, _in_subgroup(made[id(each.pod)], each.subgroup))
            for each in expected
        )
        entry = _Known(expected, tuple(made.values()), members)
        return remember(self._known, id(expected), entry, MAX_KNOWN).members

    def _member(self, pod: Pod, owners: RecordingOwners, accounting: Accounting) -> Member:
        claims = expected_claims(pod, owners)
        demand = pod_demand(
            pod, owners, self._shapes, accounting, labels_matter=True, claims=claims
        )
        meta, memory = pod.metadata, self._gpu_memory.on_node("")
        return Member(
            pod=PodRef(meta.namespace, meta.name, ""),
            shape=demand.shape,
            subgroup="",
            state=PodState.EXPECTED,
            node="",
            nominated="",
            priority=0,
            created=0.0,
            bound_since=0.0,
            charge=charge(demand, accounting, gpu_memory=memory, is_charged=_never_charged),
            labels=meta.labels,
            claims=claims.references,
        )


def _in_subgroup(member: Member, subgroup: str) -> Member:
    pod = PodRef(member.pod.namespace, member.pod.name, subgroup)
    return structs.replace(member, pod=pod, subgroup=subgroup)


def _never_charged(_claim: ResourceClaim) -> bool:
    """False: a claim that exists is charged to a pod that exists."""
    return False
