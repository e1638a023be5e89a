"""The queue tree as arrays: parents, levels, and the amounts of each queue.

Queues stand level by level (all roots, then their children, ...), siblings side by side, oldest
first. Therefore a level is a slice, the children of a queue are a slice, and a rule for all
siblings of a level is one vectorised expression. The order does not depend on how the queues were
listed.

A queue whose parent is missing, or that is in a cycle, becomes a root: its running pods are still
accounted and bounded by its own limits. Faulty queues are reported as values; the other queues are
not touched.

Amounts are arrays of shape (resources, queues); ``inf`` means unlimited.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from kai_py.api.groups import grouped
from kai_py.api.resource_names import BASE_RESOURCES
from kai_py.snapshot.resources import Bools, Floats, Ints
from kai_py.snapshot.tables.queue_checks import check_queues
from kai_py.snapshot.tables.queues import DEVICE_SELECTOR, NamespaceRule, QueueInfo, QueueProblem

Index = npt.NDArray[np.int32]


@dataclass(frozen=True)
class QueueTable:
    """All queues in level order.

    ``path[q, d]`` is the ancestor of q at depth d (q itself at its own depth, -1 below).
    ``level_starts`` has one entry more than there are levels. Children of q are the queues
    ``child_start[q]:child_end[q]``. ``creation_order`` ranks by age, then name: 0 is the oldest. A
    min runtime of NaN is inherited. ``shared_depths`` and ``divergence`` are caches of the policy.
    """

    names: tuple[str, ...]
    parent: Index
    depth: Index
    path: Index
    level_starts: Index
    child_start: Index
    child_end: Index
    deserved: Floats
    max: Floats
    weight: Floats
    priority: Ints
    creation_order: Ints
    preempt_min_runtime: Floats
    reclaim_min_runtime: Floats
    namespaces: tuple[NamespaceRule | None, ...]
    api_versions: tuple[str, ...]
    shared_depths: dict[int, Index] = field(default_factory=dict, repr=False, compare=False)
    divergence: dict[int, tuple[Index, Index]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Index of each queue by name."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def is_leaf(self) -> Bools:
        """(queues,) queues without children: the ones that take pods."""
        return np.equal(self.child_start, self.child_end)

    @cached_property
    def has_max(self) -> tuple[bool, ...]:
        """(queues,) whether the queue or one above it has a maximum."""
        own = np.asarray(np.isfinite(self.max).any(axis=0))
        on_path = np.asarray((own[self.path] & (self.path >= 0)).any(axis=1))
        return tuple(on_path.tolist())

    @cached_property
    def ancestry(self) -> tuple[tuple[int, ...], ...]:
        """By queue, its ancestors, root first, and the queue itself last."""
        paths = zip(self.path.tolist(), self.depth.tolist(), strict=True)
        return tuple(tuple(path[: depth + 1]) for path, depth in paths)

    def ancestors(self, queue: int) -> Index:
        """(depth + 1,) positions: of the queue's ancestors, root first, and of the queue last."""
        return self.path[queue, : self.depth[queue] + 1]

    def levels(self) -> Iterator[slice]:
        """The levels from the roots down."""
        for start, end in pairwise(self.level_starts.tolist()):
            yield slice(start, end)

    def subtree_sums(self, own: Floats) -> Floats:
        """Each queue's own amounts (resources, queues) plus those of everything below it."""
        sums = own.copy()
        if not own.any():
            return sums
        for level in reversed(list(self.levels())[1:]):
            np.add.at(sums.T, self.parent[level], sums[:, level].T)
        return sums


def build_queue_table(
    specs: Iterable[QueueInfo], resources: Sequence[str]
) -> tuple[QueueTable, tuple[QueueProblem, ...]]:
    """The table of all queues over ``resources``, and the problems of faulty ones."""
    checked = check_queues(specs, resources)
    levels = _by_level(checked.queues, checked.parents)
    order = [spec for level in levels for spec in level]
    level_starts = np.array([0, *accumulate(map(len, levels))], np.int32)
    index = {spec.name: position for position, spec in enumerate(order)}
    parent = np.array([index.get(checked.parents[spec.name], -1) for spec in order], np.int32)
    path = _ancestor_paths(parent, level_starts)
    rows = np.arange(len(order), dtype=np.int32)
    table = QueueTable(
        names=tuple(spec.name for spec in order),
        parent=parent,
        depth=level_starts.searchsorted(rows, "right").astype(np.int32) - 1,
        path=path,
        level_starts=level_starts,
        child_start=parent.searchsorted(rows, "left").astype(np.int32),
        child_end=parent.searchsorted(rows, "right").astype(np.int32),
        deserved=_deserved(resources, order),
        max=_amount_rows(resources, [spec.max for spec in order], [np.inf] * len(order)),
        weight=_amount_rows(resources, [s.weights for s in order], [spec.weight for spec in order]),
        priority=np.array([spec.priority for spec in order], np.int64),
        creation_order=_ranks(order),
        preempt_min_runtime=_seconds([spec.preempt_min_runtime for spec in order]),
        reclaim_min_runtime=_seconds([spec.reclaim_min_runtime for spec in order]),
        namespaces=tuple(spec.namespaces for spec in order),
        api_versions=tuple(spec.api_version for spec in order),
    )
    return table, checked.problems


def _by_level(specs: Sequence[QueueInfo], parents: Mapping[str, str]) -> list[list[QueueInfo]]:
    """The levels from the roots down; siblings stand together, oldest first."""
    children = grouped(specs, lambda spec: parents[spec.name])
    levels: list[list[QueueInfo]] = []
    level = children.get("", [])
    while level:
        levels.append(level)
        level = [child for spec in level for child in children.get(spec.name, ())]
    return levels


def _ancestor_paths(parent: Index, level_starts: Index) -> Index:
    """(queues, levels) ancestors by depth, from those of the parents."""
    path = np.full((len(parent), len(level_starts) - 1), -1, np.int32)
    for depth, (start, end) in enumerate(pairwise(level_starts.tolist())):
        path[start:end, :depth] = path[parent[start:end], :depth]
        path[start:end, depth] = np.arange(start, end)
    return path


def _ranks(order: Sequence[QueueInfo]) -> Ints:
    ranks = np.empty(len(order), np.int64)
    oldest_first = sorted(range(len(order)), key=lambda q: (order[q].created, order[q].name))
    ranks[oldest_first] = np.arange(len(order))
    return ranks


def _is_unlimited_unless_named(resource: str) -> bool:
    """Whether a queue that does not name a resource is guaranteed all of it."""
    return resource in BASE_RESOURCES or resource.startswith(DEVICE_SELECTOR)


def _deserved(resources: Sequence[str], specs: Sequence[QueueInfo]) -> Floats:
    """(resources, queues); cpu, memory and the like are unlimited unless a queue names them."""
    rows: list[float] = []
    for name in resources:
        unnamed = np.inf if _is_unlimited_unless_named(name) else 0.0
        rows += [s.deserved.get(name, np.inf if s.unlimited else unnamed) for s in specs]
    return np.array(rows, np.float64).reshape(len(resources), len(specs))


def _amount_rows(
    resources: Sequence[str], amounts: Sequence[Mapping[str, float]], unnamed: Sequence[float]
) -> Floats:
    columns = list(zip(amounts, unnamed, strict=True))
    rows = [[named.get(resource, rest) for named, rest in columns] for resource in resources]
    return np.array(rows, np.float64).reshape(len(resources), len(columns))


def _seconds(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)
