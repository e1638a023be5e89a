"""Queues in a cycle: limits, allocated amounts and demand of each.

Amounts are (quota resources, queues) and include the subtree of a queue, so charging a pod adds its
cost to its queue and all ancestors. A gang whose queue does not exist is charged nowhere.

The queue tree and the fair shares are kept from cycle to cycle and computed again once their inputs
change. Comparing the inputs costs O(resources x queues).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np
from msgspec import Struct, field

from kai_py.dra.device_limits import selector_problems
from kai_py.plan.state.cluster_totals import ClusterTotals
from kai_py.plan.state.shared_claims import SharedClaims
from kai_py.plan.state.undo import Undo, no_undo
from kai_py.policy.fair_share import FairShare, fair_share
from kai_py.policy.fairness_rules import FairnessRules
from kai_py.policy.queue_usage import QueueUsage
from kai_py.policy.round_robin import GangCosts, cumulative_usage
from kai_py.policy.usage_history import ExternalUsage, UsageHistory
from kai_py.snapshot.accounting import GPU, Accounting
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Floats, amounts_at
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_tree import Index, QueueTable, build_queue_table
from kai_py.snapshot.tables.queues import QueueInfo, QueueProblem, UsageRecord

QueueTree = tuple[QueueTable, tuple[QueueProblem, ...]]
"""All queues, and the problems of their specs."""

TreeInputs = tuple[tuple[QueueInfo, ...], tuple[str, ...]]
"""The specs of the queues, and the resources that are counted."""

ShareInputs = tuple[bytes, bytes, bytes | None, FairnessRules]
"""Total, demand and past usage as bytes, and the rules of division."""


class FairShareCache(Struct):
    """The last tree, totals and shares with their inputs. The results are read-only."""

    _tree_inputs: TreeInputs = ((), ())
    _tree: QueueTree | None = None
    _share_inputs: ShareInputs | None = None
    _shares: FairShare | None = None
    totals: ClusterTotals = field(default_factory=ClusterTotals)

    def tree(self, specs: Sequence[QueueInfo], resources: Sequence[str]) -> QueueTree:
        """The queues of ``specs`` over ``resources``, as of ``build_queue_table``."""
        inputs = tuple(specs), tuple(resources)
        if self._tree is None or inputs != self._tree_inputs:
            self._tree_inputs, self._tree = inputs, build_queue_table(specs, resources)
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
        """The fair shares among the queues that ``tree`` returned last, as of ``fair_share``.

        ``total``: (quota resources,); ``demand``, ``past``: (quota resources, queues).
        """
        past_bytes = None if past is None else past.tobytes()
        inputs = total.tobytes(), demand.tobytes(), past_bytes, rules
        if self._shares is None or inputs != self._share_inputs:
            self._share_inputs = inputs
            self._shares = fair_share(queues, total, demand, rules, past)
        return self._shares


PastUsage = UsageHistory | ExternalUsage
"""Sources of the past usage of queues: our own records, or an external one."""

MAX_CACHED_COSTS = 16_384
NOTHING: Mapping[str, Mapping[str, float]] = {}
ROUNDING = 1e-12
ALWAYS_COUNTED = (GPU, "cpu", "memory")


class Quota(Struct, frozen=True, dict=True):
    """Queue state of a cycle; ``shares`` stay as computed at its start."""

    usage: QueueUsage
    resources: tuple[str, ...]
    shares: FairShare
    demand: Floats
    rules: FairnessRules
    shared_claims: SharedClaims
    infeasible: Floats
    """(resources, queues) the part of ``demand`` that can never be served, and does not count."""
    incomplete: Floats
    """(resources, queues) the part of it that cannot be served yet, and does not count, either."""
    leaving: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """(resources, queues) the part of the allocated amounts that terminating pods still have."""
    problems: tuple[QueueProblem, ...] = ()
    past_usage: Mapping[str, UsageRecord] = field(default_factory=dict)
    """Past usage by queue, where it counts."""
    _positions: Mapping[str, int] = field(default_factory=dict)
    _costs: dict[int, tuple[Mapping[str, float], Floats]] = field(default_factory=dict)

    @cached_property
    def has_leaving(self) -> bool:
        """Whether terminating pods are about to leave any of the allocated amounts."""
        return bool(self.leaving.any())

    def cost(self, charge: Mapping[str, float]) -> Floats:
        """(resources,) the charge on the quota axis, without resources that no queue counts.

        Pods of a shape share their charge, so the cost is cached per charge object.
        """
        cached = self._costs.get(id(charge))
        if cached is not None:
            return cached[1]
        cost = self.cost_vector(charge)
        cost.flags.writeable = False
        if len(self._costs) >= MAX_CACHED_COSTS:
            self._costs.clear()
        # The entry keeps the charge alive, so its id can't be used by another object.
        self._costs[id(charge)] = (charge, cost)
        return cost

    def cost_of(self, members: Sequence[Member]) -> Floats:
        """(resources,) the joint cost of pods, with what they owe."""
        charge = members[0].charge if members else {}
        if len(members) == 1 and not members[0].owes:
            return self.cost(charge)
        if all(member.charge is charge and not member.owes for member in members):
            cost: Floats = self.cost(charge) * len(members)
            return cost
        owes = [joined.charge for member in members for joined in member.owes]
        joint = np.zeros(len(self.resources))
        for each in (*(member.charge for member in members), *owes):
            joint += self.cost(each)
        return joint

    def usage_beside(self, gang: Gang, members: Sequence[Member]) -> QueueUsage:
        """The usage to which a request is added, without what is counted of what it owes."""
        if not gang.shares_claims:
            return self.usage
        owes = [joined for member in members for joined in member.owes]
        return self.shared_claims.without_counted(gang, owes) if owes else self.usage

    def cost_vector(self, charge: Mapping[str, float]) -> Floats:
        """(quota resources,) as ``cost``, for a charge that no pod has: a new array, not cached."""
        return amounts_at(charge, self._positions)

    def queue_of(self, gang: Gang) -> int | None:
        """Position of the gang's queue; None if it does not exist."""
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
    ) -> Undo:
        """Charge a cost ``count`` times (-1 as ``sign``: refund) to the queue; returns the undo.

        Sums are bit-equal to those of ``count`` single charges.
        """
        queue = self.queue_of(gang)
        if queue is None:
            return no_undo
        usage = self.usage
        path, cost = usage.queues.ancestors(queue), sign * self.cost(charge)
        tables = [usage.allocated, usage.non_preemptible] if non_preemptible else [usage.allocated]
        before = [table[:, path] for table in tables]

        def undo() -> None:
            for table, amounts in zip(tables, before, strict=True):
                table[:, path] = amounts

        for table, amounts in zip(tables, before, strict=True):
            table[:, path] = _add_repeatedly(amounts, cost, count)
        return undo

    def charge_batch(self, leaves: Index, costs: GangCosts) -> Undo:
        """Charge preemptible gangs in the order of their queues ``leaves`` (n,); returns the undo.

        Sums are bit-equal to those of charging pod by pod. O(n x depth log n).
        """
        allocated, paths = self.usage.allocated, self.queues.path[leaves]
        before = allocated.copy()
        charged, counts = np.unique(paths, return_counts=True)
        # Stable: below each queue the gangs keep their order.
        ordered = leaves[paths.ravel().argsort(kind="stable") // paths.shape[1]]
        for queue, below in zip(charged.tolist(), np.split(ordered, counts.cumsum()), strict=False):
            if queue >= 0:
                allocated[:, queue] = cumulative_usage(before[:, queue], costs.by_pod(below))[:, -1]

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
    infeasible: Mapping[str, Mapping[str, float]] = NOTHING,
    incomplete: Mapping[str, Mapping[str, float]] = NOTHING,
    non_preemptible: Mapping[str, Mapping[str, float]] = NOTHING,
) -> Quota:
    """The queues of a snapshot with their fair shares; with a ``history``, past usage counts.

    ``infeasible``, ``incomplete``: by queue, requests that do not count as demand
    (``InfeasibleDemand``, ``IncompleteDemand``); ``non_preemptible``: requests of pending pods that
    count only as far as their queue deserves them.
    ``cache``: results of the cycle before. ``device_gpus``: (nodes,) GPUs in ResourceSlices; where
    a node also reports device plugin GPUs both are the same cards, so the larger number counts.
    """
    resources, cached = _counted_resources(snapshot), cache or FairShareCache()
    queues, problems = cached.tree(snapshot.queues, resources)
    problems = (*problems, *selector_problems(snapshot.queues))
    positions = {name: row for row, name in enumerate(resources)}
    table = partial(_table, queues, positions)
    own, demand = table(snapshot.queue_allocated), table(snapshot.queue_requested)
    fixed, leaving = table(snapshot.queue_non_preemptible), table(snapshot.queue_leaving)
    never, not_yet, to_be_fixed = map(table, (infeasible, incomplete, non_preemptible))
    totals = cached.totals.of(snapshot, resources, accounting, device_gpus)
    not_yet += np.clip(fixed + to_be_fixed - queues.deserved, 0.0, to_be_fixed)
    demand, never, not_yet = map(queues.subtree_sums, (demand, never, not_yet))
    allocated = queues.subtree_sums(own)
    past = _past_fractions(history, snapshot, queues, resources, allocated=allocated, total=totals)
    shares = cached.compute(queues, totals, counted_demand(demand, never + not_yet), rules, past)
    usage = QueueUsage(
        queues=queues,
        total=totals,
        allocated=allocated,
        non_preemptible=queues.subtree_sums(fixed),
        fair=shares.fair,
    )
    return Quota(
        usage=usage,
        resources=resources,
        shares=shares,
        demand=demand,
        rules=rules,
        shared_claims=SharedClaims(snapshot, usage, positions),
        infeasible=never,
        incomplete=not_yet,
        leaving=queues.subtree_sums(leaving),
        problems=problems,
        past_usage=history.records(snapshot.now) if isinstance(history, UsageHistory) else {},
        _positions=positions,
    )


def _past_fractions(
    history: PastUsage | None,
    snapshot: Snapshot,
    queues: QueueTable,
    resources: Sequence[str],
    *,
    allocated: Floats,
    total: Floats,
) -> Floats | None:
    """(resources, queues) past usage as parts of the cluster; None where it does not count."""
    if history is None:
        return None
    if isinstance(history, ExternalUsage):
        return history.fractions(snapshot.now, queues.names, resources, total)
    return history.advance(
        snapshot.now,
        queues.names,
        resources,
        allocated=allocated,
        total=total,
        recorded={spec.name: spec.usage for spec in snapshot.queues if spec.usage},
    )


def counted_demand(demand: Floats, excluded: Floats) -> Floats:
    """(quota resources, queues) the demand that counts, without what is left by rounding alone."""
    left: Floats = np.maximum(demand - excluded, 0.0)
    left[left <= ROUNDING * demand] = 0.0
    return left


def _counted_resources(snapshot: Snapshot) -> tuple[str, ...]:
    named = {name for queue in snapshot.queues for name in (*queue.deserved, *queue.max)}
    return (*ALWAYS_COUNTED, *sorted(named - set(ALWAYS_COUNTED)))


def _table(
    queues: QueueTable, positions: Mapping[str, int], charges: Mapping[str, Mapping[str, float]]
) -> Floats:
    """(resources, queues) the charges by queue, without those of the queues below."""
    table = np.zeros((len(positions), len(queues)))
    for queue, charge in charges.items():
        _add_charge(table, queues, positions, queue, charge)
    return table


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


def _add_repeatedly(allocated: Floats, cost: Floats, count: int) -> Floats:
    """(resources, queues) ``allocated`` after ``count`` single charges of ``cost`` (resources,)."""
    if count == 1:
        added: Floats = allocated + cost[:, None]
        return added
    # ``count * cost`` would round differently from single charges.
    steps = np.empty((count + 1, *allocated.shape))
    steps[0], steps[1:] = allocated, cost[:, None]
    sums: Floats = np.add.accumulate(steps, axis=0)[-1]
    return sums
