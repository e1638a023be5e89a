"""Queues in a cycle: what each may have, has, and is asked for, as the cycle goes on.

Amounts are (quota resources, queues) and include everything below a queue, so charging a pod adds
its cost to the queue and all its ancestors. A gang whose queue does not exist is charged nowhere;
its pods that already run are found in ``unknown``.

Queues and fair shares from cycle to cycle, worked out again once what they follow from changes.

Comparing costs O(resources x queues), and nothing at all per level of the tree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kai_py.policy.external_usage import ExternalUsage
from kai_py.policy.fair_share import FairShare, fair_share
from kai_py.policy.fairness_rules import FairnessRules
from kai_py.policy.queue_usage import QueueUsage
from kai_py.policy.round_robin import GangCosts, cumulative_usage
from kai_py.policy.usage_history import UsageHistory
from kai_py.snapshot.accounting import DEVICE_CLASS, GPU, Accounting, total
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_tree import Index, QueueTable, build_queue_table
from kai_py.snapshot.tables.queues import DEVICE_ATTRIBUTE, QueueInfo, QueueProblem, UsageRecord

QueueTree = tuple[QueueTable, tuple[QueueProblem, ...]]
"""All queues, and what is wrong with which of them."""

TreeInputs = tuple[tuple[QueueInfo, ...], tuple[str, ...]]
"""The queues as users wrote them, and the resources that are counted."""

ShareInputs = tuple[bytes, bytes, bytes | None, FairnessRules]
"""What is there, asked for and was used, and the rules by which it is divided."""


@dataclass(slots=True)
class FairShareCache:
    """What was worked out last. Nobody writes to it."""

    _tree_inputs: TreeInputs = ((), ())
    _tree: QueueTree | None = None
    _share_inputs: ShareInputs | None = None
    _shares: FairShare | None = None

    def tree(self, specs: Sequence[QueueInfo], resources: Sequence[str]) -> QueueTree:
        """The queues of ``specs`` over ``resources``, as of ``build_queues``."""
        written = tuple(specs), tuple(resources)
        if self._tree is None or written != self._tree_inputs:
            self._tree_inputs, self._tree = written, build_queue_table(specs, resources)
            self._shares = None
        return self._tree

    def compute(
        self,
        queues: QueueTable,
        total: Floats,
        demand: Floats,
        rules: FairnessRules,
        past: Floats | None,
    ) -> FairShare:
        """The fair shares among the queues that ``tree`` gave last, as of ``fair_share``."""
        used = None if past is None else past.tobytes()
        amounts = total.tobytes(), demand.tobytes(), used, rules
        if self._shares is None or amounts != self._share_inputs:
            self._share_inputs = amounts
            self._shares = fair_share(queues, total, demand, rules, past)
        return self._shares


PastUsage = UsageHistory | ExternalUsage
"""What knows the past use of queues: we, or somebody who is asked."""

MAX_CACHED_COSTS = 4096
ALWAYS_COUNTED = (GPU, "cpu", "memory")


@dataclass(frozen=True)
class Quota:
    """Queue state of a cycle; ``shares`` stay as computed at its start."""

    usage: QueueUsage
    resources: tuple[str, ...]
    shares: FairShare
    demand: Floats
    rules: FairnessRules
    problems: tuple[QueueProblem, ...] = ()
    past_usage: Mapping[str, UsageRecord] = field(default_factory=dict)
    """Past use by queue, where it counts."""
    _positions: Mapping[str, int] = field(default_factory=dict)
    _costs: dict[int, tuple[Mapping[str, float], Floats]] = field(default_factory=dict)

    def cost(self, charge: Mapping[str, float]) -> Floats:
        """(resources,) the charge on the quota axis; what no queue counts is left out.

        Pods of a shape share their charge, so the answer is kept per charge object.
        """
        known = self._costs.get(id(charge))
        if known is not None:
            return known[1]
        cost = self._cost_vector(charge)
        cost.flags.writeable = False
        if len(self._costs) >= MAX_CACHED_COSTS:
            self._costs.clear()
        self._costs[id(charge)] = (charge, cost)
        return cost

    def cost_of(self, members: Sequence[Member]) -> Floats:
        """(resources,) what pods cost together."""
        charge = members[0].charge if members else {}
        if len(members) == 1:
            return self.cost(charge)
        if all(member.charge is charge for member in members):
            cost: Floats = self.cost(charge) * len(members)
            return cost
        return self._cost_vector(total(member.charge for member in members))

    def _cost_vector(self, charge: Mapping[str, float]) -> Floats:
        column = np.zeros(len(self.resources))
        for name, amount in charge.items():
            position = self._positions.get(name)
            if position is not None:
                column[position] = amount
        return column

    def queue_of(self, gang: Gang) -> int | None:
        """The gang's queue, if it exists."""
        return self.queues.positions.get(gang.queue)

    @property
    def queues(self) -> QueueTable:
        """The queue tree."""
        return self.usage.queues

    def charge(
        self,
        gang: Gang,
        charge: Mapping[str, float],
        sign: float,
        count: int = 1,
        *,
        non_preemptible: bool,
    ) -> Callable[[], None]:
        """Add (or with -1 take back) a cost ``count`` times to the gang's queue; returns the undo.

        Sums are the same as of ``count`` charges of one. ``fixed``: what it is for can't be taken
        back.
        """
        queue = self.queue_of(gang)
        if queue is None:
            return _no_undo
        line, cost = self.queues.ancestors(queue), sign * self.cost(charge)
        standing = self.usage
        tables = (
            [standing.allocated, standing.non_preemptible]
            if non_preemptible
            else [standing.allocated]
        )
        before = [table[:, line] for table in tables]

        def undo() -> None:
            for table, amounts in zip(tables, before, strict=True):
                table[:, line] = amounts

        for table, amounts in zip(tables, before, strict=True):
            table[:, line] = _add_repeatedly(amounts, cost, count)
        return undo

    def charge_batch(self, leaves: Index, costs: GangCosts) -> Callable[[], None]:
        """Charge gangs that can be taken back, in the turns of ``leaves`` (n,); returns the undo.

        Sums are the same as of charging pod by pod.
        """
        allocated, paths = self.usage.allocated, self.queues.path[leaves]
        before = allocated.copy()
        for queue in np.unique(paths[paths >= 0]).tolist():
            turns = leaves[(paths == queue).any(axis=1)]
            allocated[:, queue] = cumulative_usage(before[:, queue], costs.by_pod(turns))[:, -1]

        def undo() -> None:
            allocated[:] = before

        return undo


def quota_of(
    snapshot: Snapshot,
    rules: FairnessRules,
    accounting: Accounting,
    device_gpus: Floats,
    history: PastUsage | None = None,
    *,
    cache: FairShareCache | None = None,
) -> Quota:
    """The queues of a snapshot with their fair shares; with a ``history``, past use counts.

    ``kept``: what the quota of the cycle before worked out.
    ``device_gpus``: (nodes,) GPUs that ResourceSlices publish; where a node also reports device
    plugin GPUs both stand for the same cards, so the larger number counts.
    """
    resources, known = _counted_resources(snapshot), cache or FairShareCache()
    queues, problems = known.tree(snapshot.queues, resources)
    positions = {name: row for row, name in enumerate(resources)}
    empty = np.zeros((len(resources), len(queues)))
    own, demand, fixed = empty.copy(), empty.copy(), empty.copy()
    sums = (snapshot.queue_allocated, snapshot.queue_requested, snapshot.queue_non_preemptible)
    for table, amounts in zip((own, demand, fixed), sums, strict=True):
        for queue, charge in amounts.items():
            _add_charge(table, queues, positions, queue, charge)
    capacity = _capacity(snapshot, resources, accounting, device_gpus)
    demand = queues.subtree_sums(demand)
    allocated = queues.subtree_sums(own)
    past = None
    if isinstance(history, ExternalUsage):
        past = history.fractions(snapshot.now, queues.names, resources, capacity)
    elif history is not None:
        past = history.advance(
            snapshot.now,
            queues.names,
            resources,
            allocated=allocated,
            total=capacity,
            recorded={spec.name: spec.usage for spec in snapshot.queues if spec.usage},
        )
    shares = known.compute(queues, capacity, demand, rules, past)
    standing = QueueUsage(
        queues=queues,
        total=capacity,
        allocated=allocated,
        non_preemptible=queues.subtree_sums(fixed),
        fair=shares.fair,
    )
    return Quota(
        usage=standing,
        resources=resources,
        shares=shares,
        demand=demand,
        rules=rules,
        problems=problems,
        past_usage=history.records(snapshot.now) if isinstance(history, UsageHistory) else {},
        _positions=positions,
    )


def _counted_resources(snapshot: Snapshot) -> tuple[str, ...]:
    named = {name for queue in snapshot.queues for name in (*queue.deserved, *queue.max)}
    return (*ALWAYS_COUNTED, *sorted(named - set(ALWAYS_COUNTED)))


def _add_charge(
    table: Floats,
    queues: QueueTable,
    positions: Mapping[str, int],
    queue: str,
    charge: Mapping[str, float],
) -> None:
    column = queues.positions.get(queue)
    if column is None:
        return
    for name, amount in charge.items():
        if name in positions:
            table[positions[name], column] += amount


def _capacity(
    snapshot: Snapshot,
    resources: tuple[str, ...],
    accounting: Accounting,
    device_gpus: Floats,
) -> Floats:
    nodes = snapshot.nodes
    usable = slice(None) if nodes.ready.all() else nodes.ready
    capacity = np.zeros(len(resources))
    for name, row in snapshot.resources.positions.items():
        if name in resources:
            capacity[resources.index(name)] = nodes.allocatable[row, usable].sum()
    for row, name in enumerate(resources):
        if name.startswith((DEVICE_CLASS, DEVICE_ATTRIBUTE)):
            capacity[row] = accounting.device_count(name)
    gpus = gpus_of_nodes(snapshot, accounting, device_gpus)
    capacity[resources.index(GPU)] = gpus[usable].sum()
    return capacity


def gpus_of_nodes(snapshot: Snapshot, accounting: Accounting, device_gpus: Floats) -> Floats:
    """(nodes,) GPUs that each node has, usable or not; arguments as of ``quota_of``."""
    plugin_gpus = np.zeros(len(snapshot.nodes))
    for name, row in snapshot.resources.positions.items():
        per_unit = accounting.gpus_per_unit(name)
        if per_unit:
            plugin_gpus += per_unit * snapshot.nodes.allocatable[row]
    return np.maximum(plugin_gpus, device_gpus)


def _add_repeatedly(allocated: Floats, cost: Floats, count: int) -> Floats:
    """(resources, queues) ``held`` after ``count`` charges of ``cost`` (resources,), one by one."""
    if count == 1:
        once: Floats = allocated + cost[:, None]
        return once
    steps = np.empty((count + 1, *allocated.shape))
    steps[0], steps[1:] = allocated, cost[:, None]
    sums: Floats = np.add.accumulate(steps, axis=0)[-1]
    return sums


def _no_undo() -> None:
    """Undo of a charge that went nowhere."""
