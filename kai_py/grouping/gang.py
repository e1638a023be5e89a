"""What grouping says of a pod: its gang, the gang's tree of subgroups and the pod's leaf in it.

A gang is placed all-or-nothing. It is a tree: a leaf holds pods and ``min_members`` is its floor;
an inner node needs ``min_subgroups`` of its children, all of them when unset.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kai_py.api.records.core import Pod
from kai_py.grouping.gang_settings import DEFAULT_SETTINGS, GangSettings


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """Keep a subgroup's pods within one domain of a level; levels are node label keys.

    ``fitting_level``: required if an empty domain of that level could hold them, else preferred.
    """

    topology: str = ""
    required_level: str = ""
    preferred_level: str = ""
    fitting_level: str = ""


@dataclass(frozen=True, slots=True)
class Subgroup:
    """A node of the gang's tree; the root's name is empty.

    ``leaves_whole``: its pods are evicted together or not at all, surplus or not.
    """

    name: str = ""
    min_members: int = 0
    min_subgroups: int | None = None
    children: tuple["Subgroup", ...] = ()
    topology: TopologyConstraint | None = None
    evicted_together: bool = False

    def leaves(self) -> tuple["Subgroup", ...]:
        """The leaves in listing order; a tree of one node is its own leaf."""
        if not self.children:
            return (self,)
        return tuple(leaf for child in self.children for leaf in child.leaves())

    @property
    def is_unconstrained_leaf(self) -> bool:
        """Whether its pods may go anywhere, each for itself as far as the tree is concerned."""
        return self.topology is None and not self.children

    def min_pods(self) -> int:
        """The least number of pods that satisfies the tree."""
        if not self.children:
            return self.min_members
        floors = sorted(child.min_pods() for child in self.children)
        needed = len(floors) if self.min_subgroups is None else self.min_subgroups
        return sum(floors[:needed])


@dataclass(frozen=True, slots=True)
class Owner:
    """The object a gang's events and explanations are written to."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ExpectedPods:
    """Pods that a framework makes once others run.

    ``count`` pods in all belong to the leaf; those that do not exist yet will be like ``pod``.
    """

    subgroup: str
    count: int
    pod: Pod


@dataclass(frozen=True, slots=True)
class GangSpec:
    """A gang as derived from its pods' owners.

    ``key`` is unique in the cluster and stable over restarts: ``namespace/Kind/name``.
    ``leaf`` and ``order`` are the asking pod's own: its subgroup, and its rank in the gang (lower
    is placed first). ``queue`` is empty when nothing names one; ``preemptible`` is None when the
    priority decides, ``semi_preemptible`` keeps the pods up to the floors. ``suspend``:
    whether its Job is suspended in place of evicting all its pods. ``workload_class`` is
    what pods of this kind are for (``train``, ``build``, ``inference``): dialects derive default
    priorities from it. ``expected_runtime``: seconds that its pods are said to run. ``ageing``:
    seconds of waiting that count as one point of its priority.
    ``provisioning_class``: of the ProvisioningRequest made while it waits; None: as configured.
    ``problem`` tells, in one sentence naming object and field, why the gang can't be placed, with
    ``owner_unknown`` because it is not known yet;
    ``pod_problem`` why this pod can't, though the rest of the gang may. ``disregarded`` names the
    other groups that the pod asks for and does not get, because a source before theirs decided.
    ``awaited``: pods that come later, for which there must be room before any starts.
    """

    key: str
    owner: Owner
    queue: str
    tree: Subgroup
    subgroup: str = ""
    order: int = 0
    preemptible: bool | None = None
    semi_preemptible: bool = False
    suspend: bool | None = None
    total_pods: int = 0
    problem: str = ""
    owner_unknown: bool = False
    pod_problem: str = ""
    settings: GangSettings = DEFAULT_SETTINGS
    workload_class: str = ""
    expected_runtime: float | None = None
    ageing: float | None = None
    provisioning_class: str | None = None
    ignored_markers: tuple[str, ...] = ()
    expected: tuple[ExpectedPods, ...] = ()


def is_satisfied(tree: Subgroup, members: Mapping[str, int]) -> bool:
    """Whether ``members`` (pods per leaf name) reach the floors of ``tree``.

    The one rule for readiness, order, staleness, victims and status.
    """
    if not tree.children:
        return members.get(tree.name, 0) >= tree.min_members
    reached = sum(is_satisfied(child, members) for child in tree.children)
    needed = len(tree.children) if tree.min_subgroups is None else tree.min_subgroups
    return reached >= needed


def has_topology_constraint(tree: Subgroup) -> bool:
    """Whether any node of the tree has a topology constraint."""
    return tree.topology is not None or any(
        has_topology_constraint(child) for child in tree.children
    )
