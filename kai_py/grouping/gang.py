"""The result of grouping: a pod's gang, the gang's tree of subgroups and the pod's leaf in it.

A gang is placed all-or-nothing. It is a tree: a leaf holds pods and requires ``min_members`` of
them (minMember); an inner node requires ``min_subgroups`` of its children, all of them when unset.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from kai_py.api.records.core import ObjectMeta, OwnerReference, Pod
from kai_py.api.references import PodRef
from kai_py.grouping.gang_settings import DEFAULT_SETTINGS, GangSettings


class TopologyConstraint(Struct, frozen=True):
    """Keeps a subgroup's pods within one domain of a level; levels are node label keys.

    ``fitting_level``: required if an empty domain of that level could hold them, else preferred.
    """

    topology: str = ""
    required_level: str = ""
    preferred_level: str = ""
    fitting_level: str = ""


class Subgroup(Struct, frozen=True):
    """A node of the gang's tree; the root's name is empty.

    ``evicted_together``: its pods are evicted together or not at all, elastic or not.
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

    def leaf_names(self) -> tuple[str, ...]:
        """The names of the leaves in listing order."""
        if not self.children:
            return (self.name,)
        return tuple(name for child in self.children for name in child.leaf_names())

    @property
    def is_unconstrained_leaf(self) -> bool:
        """Whether the tree lets its pods be placed anywhere, independently of each other."""
        return self.topology is None and not self.children

    @property
    def needed_children(self) -> int:
        """How many of its children must be satisfied: ``min_subgroups``, by default all."""
        return len(self.children) if self.min_subgroups is None else self.min_subgroups

    def min_pods(self) -> int:
        """The least number of pods that satisfies the tree."""
        if not self.children:
            return self.min_members
        return sum(sorted(child.min_pods() for child in self.children)[: self.needed_children])


class Owner(Struct, frozen=True):
    """The object to which a gang's events and explanations are written."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


def pod_owner(pod: ObjectMeta | PodRef) -> Owner:
    """The pod itself as the object to which events are written."""
    return Owner("v1", "Pod", pod.namespace, pod.name, pod.uid)


# Pods of one workload, which are read one after the other, share one copy.
@lru_cache(maxsize=4096)
def named_owner(reference: OwnerReference, namespace: str) -> Owner:
    """The owner that a pod's ``reference`` names."""
    return Owner(reference.api_version, reference.kind, namespace, reference.name, reference.uid)


class FailureLimit(Struct, frozen=True):
    """A workload that fails if more than ``remaining`` further pods with this limit are evicted.

    Pods with the same ``key`` count together. ``cause``: the field that sets the limit, and its
    value. ``most``: how many it would survive if none had ``failed``. ``counted_once``: pods with
    the same name count as one; empty: each counts.
    """

    key: str
    owner: Owner
    remaining: int
    cause: str
    most: int = 0
    failed: int = 0
    counted_once: str = ""

    def __str__(self) -> str:
        """The workload and the cause."""
        return f"{self.owner.kind} {self.owner.namespace}/{self.owner.name}: {self.cause}"


class ExpectedPods(Struct, frozen=True):
    """Pods that a framework creates once others run.

    ``count`` pods in total belong to the leaf; those that do not exist yet will be like ``pod``.
    """

    subgroup: str
    count: int
    pod: Pod


class GangSpec(Struct, frozen=True):
    """A gang as derived from its pods' owners, and what one of its pods is in it."""

    key: str
    """Unique in the cluster and stable over restarts: ``namespace/Kind/name``."""
    owner: Owner
    queue: str
    """Empty when nothing names one."""
    tree: Subgroup
    subgroup: str = ""
    """The leaf of the pod in question."""
    order: int = 0
    """The rank of the pod in question; lower is placed first."""
    preemptible: bool | None = None
    """None when the priority decides."""
    semi_preemptible: bool = False
    """Whether the pods up to minMember are protected."""
    suspend: bool | None = None
    """Whether its Job is suspended in place of evicting all its pods."""
    total_pods: int = 0
    has_roles: bool = False
    """Its pods are made from several templates, which have been read."""
    problem: str = ""
    """One sentence, naming object and field: why the gang can't be placed."""
    owner_unknown: bool = False
    """The ``problem`` is only that an owner is not known yet."""
    pod_problem: str = ""
    """Why this pod can't be placed, though the rest of the gang may."""
    settings: GangSettings = DEFAULT_SETTINGS
    expected_runtime: float | None = None
    """Declared run time of its pods in seconds."""
    ignored_markers: tuple[str, ...] = ()
    """Groups that the pod names without effect, because a source with precedence decided, and
    fields of its own group that are not read."""
    expected: tuple[ExpectedPods, ...] = ()
    """Pods created later, for which there must be capacity before any pod starts."""
    failure_limits: tuple[FailureLimit, ...] = ()
    """How many evictions the workloads that own this pod survive."""
    rule: str = ""
    """What made these pods a gang, as people read it."""
    workloads: tuple[tuple[str, str], ...] = ()
    """Kind and name of each owner of this pod that is known by name, the nearest first."""
    completed: tuple[str, int] | None = None
    """The Job that made this pod, by uid, and how many pods of it have succeeded, at most as many
    as run at a time; None if no Job is there, or none has."""


MAX_SUBGROUPS = 10_000
MAX_TREE_DEPTH = 16
TOO_MANY_SUBGROUPS = "it has more than {} subgroups, which is the maximum"


def tree_problem(tree: Subgroup) -> str:
    """What is wrong with the size of a tree: work is done for each subgroup, level by level."""
    level: list[Subgroup] = [tree]
    depth, subgroups = 0, 0
    while level:
        depth, subgroups = depth + 1, subgroups + len(level)
        if subgroups > MAX_SUBGROUPS:
            return TOO_MANY_SUBGROUPS.format(MAX_SUBGROUPS)
        if depth > MAX_TREE_DEPTH + 1:
            return f"its subgroups are nested more than {MAX_TREE_DEPTH} deep, the maximum"
        level = [child for each in level for child in each.children]
    return ""


def is_satisfied(tree: Subgroup, members: Mapping[str, int]) -> bool:
    """Whether ``members`` (pods per leaf name) satisfy the minimums of ``tree``.

    The one rule for readiness, order, staleness, victims and status.
    """
    if not tree.children:
        return members.get(tree.name, 0) >= tree.min_members
    satisfied = sum(is_satisfied(child, members) for child in tree.children)
    return satisfied >= tree.needed_children


def without_minimum(tree: Subgroup) -> Subgroup:
    """``tree`` that is satisfied by no pods."""
    children = tuple(map(without_minimum, tree.children))
    return replace(tree, min_members=0, children=children)


def combined(trees: Sequence[Subgroup]) -> Subgroup:
    """The tree that requires what any of ``trees`` requires.

    Of trees with other subgroups than the largest one, which are not of one stage, it counts alone.
    """
    tree = max(trees, key=Subgroup.min_pods)
    for other in trees:
        if other is not tree and other != tree:
            tree = _both(tree, other)
    return tree


def _both(tree: Subgroup, other: Subgroup) -> Subgroup:
    """``tree``, with the minimums of ``other`` where these are higher."""
    if [each.name for each in tree.children] != [each.name for each in other.children]:
        return tree
    if not tree.children:
        return replace(tree, min_members=max(tree.min_members, other.min_members))
    children = tuple(map(_both, tree.children, other.children))
    needed: int | None = None
    if tree.min_subgroups is not None or other.min_subgroups is not None:
        # Subgroups without a minimum are always satisfied: they count as none of those needed.
        empty = sum(not each.min_pods() for each in children)
        needed = empty + max(map(_needed_with_pods, (tree, other)))
    return replace(tree, children=children, min_subgroups=needed)


def _needed_with_pods(tree: Subgroup) -> int:
    return max(tree.needed_children - sum(not each.min_pods() for each in tree.children), 0)


def least_complete_first(children: Iterable[Subgroup], have: Mapping[str, int]) -> list[Subgroup]:
    """Sibling subgroups in the order in which they get pods; ``have``: pods by leaf.

    Those below their minimum come first, then those that have a minimum, then those that have the
    smallest part of it, then by name.
    """

    def rank(child: Subgroup) -> tuple[bool, bool, float, str]:
        minimum = child.min_pods()
        pods = sum(have.get(leaf.name, 0) for leaf in child.leaves())
        part = pods / minimum if minimum else float(pods)
        return (is_satisfied(child, have), minimum == 0, part, child.name)

    return sorted(children, key=rank)


def needed_leaves(
    tree: Subgroup,
    running: Mapping[str, int],
    existing: Mapping[str, int],
    gpus: Mapping[str, float],
) -> Iterator[tuple[str, int]]:
    """The leaves that satisfy ``tree`` and their minMember, of those that run if they suffice.

    Of subgroups that run those with the fewest GPUs, so that what starts later never raises what is
    non-preemptible; the others in the order in which they are placed. ``gpus``: of a pod, by leaf.
    """
    if not tree.children:
        yield tree.name, tree.min_members
        return

    def rank(child: Subgroup) -> tuple[bool, bool, bool, float]:
        runs, exists = is_satisfied(child, running), is_satisfied(child, existing)
        leaves = needed_leaves(child, running, existing, gpus) if runs else ()
        cost = sum(pods * gpus.get(leaf, 0.0) for leaf, pods in leaves)
        return not runs, not exists, child.min_pods() == 0, cost

    ranked = sorted(least_complete_first(tree.children, running), key=rank)
    for child in ranked[: tree.needed_children]:
        yield from needed_leaves(child, running, existing, gpus)


WHOLE = "whole"
"""The subgroup of all pods of a gang that is constrained twice."""


def within(tree: Subgroup, topology: TopologyConstraint) -> Subgroup:
    """``tree`` in a domain of ``topology``, besides the constraint that it has."""
    if tree.topology is None or tree.topology == topology:
        return replace(tree, topology=topology)
    return Subgroup(children=(replace(tree, name=tree.name or WHOLE),), topology=topology)


def has_topology_constraint(tree: Subgroup) -> bool:
    """Whether any node of the tree has a topology constraint."""
    return tree.topology is not None or any(
        has_topology_constraint(child) for child in tree.children
    )
