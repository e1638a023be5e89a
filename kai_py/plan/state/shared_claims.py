"""What queues owe: shared claims that they will be charged with once the charged pods end.

A shared claim is charged to one of its pods, whose queue has it allocated
(``kai_py.snapshot.charges``); once that pod ends, it is charged to another. As the scheduler cannot
know which pod ends first, the claim counts against the bounds of the queue of each of its pods, and
once in every queue above. A queue owes the claims of pods below it that no pod below it is charged
with. The sum of what it has allocated and what it owes does not change when the charge passes from
one pod to another.

Claims that several gangs share are counted from the start, others once a pod of their gang is
placed or evicted. O(pods that share claims) once, then O(queues) per pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from msgspec import Struct

from kai_py.plan.state.undo import Undo, no_undo, undo_all
from kai_py.policy.queue_usage import QueueUsage
from kai_py.snapshot.gangs import Gang, JoinedClaim, Member, PodState
from kai_py.snapshot.resources import Bools, Floats, Ints, amounts_at
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queue_tree import Index

ALL, NON_PREEMPTIBLE = 0, 1
PODS, CHARGED = 0, 1


class _SharedClaim(Struct, frozen=True):
    """A claim with several pods.

    ``cost``: (quota resources,). ``pods``: by uid of a pod on a node, whether it is charged.
    ``counts``: (all or non-preemptible, all or charged, queues) the number of its pods below each
    queue.
    """

    charged_to: str
    cost: Floats
    counts: Ints
    pods: dict[str, bool] = msgspec.field(default_factory=dict)

    def is_owed(self, which: int, queues: Index) -> Bools:
        """(n,) whether each of these ``queues``, (n,) positions, owes the claim."""
        counts = self.counts[which][:, queues]
        owed: Bools = (counts[PODS] > 0) & (counts[CHARGED] == 0)
        return owed

    def is_counted(self, which: int, queue: int) -> bool:
        """Whether the queue has the claim allocated, or owes it."""
        return bool(self.counts[which, PODS, queue])


@dataclass(eq=False)
class SharedClaims:
    """The shared claims of a cycle, by uid; keeps ``usage.owed`` up to date."""

    snapshot: Snapshot
    usage: QueueUsage
    positions: Mapping[str, int]
    _claims: dict[str, _SharedClaim] = field(default_factory=dict)
    _known: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Count the pods on nodes that share claims with other gangs."""
        for key in self.snapshot.sharing:
            self._learn(self.snapshot.gangs[key])

    @property
    def exist(self) -> bool:
        """Whether any claim is known to be shared."""
        return bool(self._claims)

    def is_charged(self, claim: str) -> bool:
        """Whether a pod on a node, or placed, is charged with a claim that is known."""
        known = self._claims.get(claim)
        return known is not None and bool(known.pods) and any(known.pods.values())

    def is_counted(self, claim: str, gang: Gang, *, non_preemptible: bool) -> bool:
        """Whether the gang's queue has the claim of a pod of it allocated, or owes it."""
        self._learn(gang)
        queue = self.usage.queues.positions.get(gang.queue)
        known = self._claims.get(claim)
        which = NON_PREEMPTIBLE if non_preemptible else ALL
        return known is not None and queue is not None and known.is_counted(which, queue)

    def place(self, gang: Gang, member: Member) -> Undo:
        """Count a pod that was placed; returns the undo."""
        if not member.claims:
            return no_undo
        self._learn(gang)
        others = {joined.claim for joined in member.relies_on}
        known = ((ref.uid, self._claims.get(ref.uid)) for ref in member.claims)
        steps = [
            self._add(claim, gang, member, charged=uid not in others)
            for uid, claim in known
            if claim is not None
        ]
        return undo_all(steps)

    def evict(self, gang: Gang, member: Member) -> Undo:
        """Stop counting a pod that is evicted; returns the undo."""
        if not member.claims:
            return no_undo
        self._learn(gang)
        known = (self._claims.get(ref.uid) for ref in member.claims)
        uid = member.pod.uid
        return undo_all([self._remove(c, gang, member) for c in known if c and uid in c.pods])

    def without_counted(self, gang: Gang, owes: Sequence[JoinedClaim]) -> QueueUsage:
        """``usage`` without the claims in ``owes`` that queues of the gang count already.

        ``owes``: the claims that the queue would owe with a request.
        """
        if not owes:
            return self.usage
        tables = [self.usage.owed.copy(), self.usage.owed_non_preemptible.copy()]
        path = self.usage.queues.ancestors(self.usage.queues.positions[gang.queue])
        for known in (self._claims[joined.claim] for joined in owes):
            for table, counts in zip(tables, known.counts, strict=True):
                table[:, path[counts[PODS, path] > 0]] -= known.cost[:, None]
        return self.usage.with_owed(*tables)

    def _learn(self, gang: Gang) -> None:
        """Count the pods of a gang on nodes, and those that are charged with claims of them."""
        if not gang.shares_claims or gang.key in self._known:
            return
        self._known[gang.key] = None
        for member in gang.members:
            for joined in member.relies_on:
                claim = self._claim(joined)
                if self._is_counted(gang, member):
                    self._add(claim, gang, member, charged=False)

    def _claim(self, joined: JoinedClaim) -> _SharedClaim:
        known = self._claims.get(joined.claim)
        if known is not None:
            return known
        counts = np.zeros((2, 2, len(self.usage.queues)), dtype=np.int64)
        cost = amounts_at(joined.charge, self.positions)
        found = self._claims[joined.claim] = _SharedClaim(joined.charged_to, cost, counts)
        holder = self.snapshot.claim_holders.get(joined.charged_to)
        if holder is not None and self._is_counted(*holder):
            self._add(found, *holder, charged=True)
        return found

    def _is_counted(self, gang: Gang, member: Member) -> bool:
        """Whether the queue of a gang is charged with a pod of it."""
        there = member.state is PodState.BOUND or member.lingering
        return there and gang.charged and member.node in self.snapshot.nodes.positions

    def _add(self, claim: _SharedClaim, gang: Gang, member: Member, *, charged: bool) -> Undo:
        uid = member.pod.uid
        claim.pods[uid] = charged
        undo_count = self._count(claim, gang, member, 1, charged=charged)

        def undo() -> None:
            undo_count()
            del claim.pods[uid]

        return undo

    def _remove(self, claim: _SharedClaim, gang: Gang, member: Member) -> Undo:
        uid = member.pod.uid
        charged = claim.pods.pop(uid)
        undo_count = self._count(claim, gang, member, -1, charged=charged)

        def undo() -> None:
            undo_count()
            claim.pods[uid] = charged

        return undo

    def _count(
        self, claim: _SharedClaim, gang: Gang, member: Member, change: int, *, charged: bool
    ) -> Undo:
        queue = self.usage.queues.positions.get(gang.queue)
        if queue is None:
            return no_undo
        path, cost = self.usage.queues.ancestors(queue), claim.cost[:, None]
        tables = [self.usage.owed, self.usage.owed_non_preemptible]
        before, amounts = claim.counts[:, :, path], [table[:, path] for table in tables]
        for which in (ALL, NON_PREEMPTIBLE) if gang.is_non_preemptible(member) else (ALL,):
            owed = claim.is_owed(which, path)
            claim.counts[which, PODS, path] += change
            claim.counts[which, CHARGED, path] += change * charged
            changed = claim.is_owed(which, path).astype(np.int64) - owed
            # Columns that stay are not touched: adding and subtracting would round them.
            rows = path[changed != 0]
            tables[which][:, rows] += cost * changed[changed != 0]

        def undo() -> None:
            claim.counts[:, :, path] = before
            for table, earlier in zip(tables, amounts, strict=True):
                table[:, path] = earlier

        return undo
