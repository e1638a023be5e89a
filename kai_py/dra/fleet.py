"""Allocate devices on any of thousands of nodes: equal nodes in equal standing share one answer.

A question about all nodes is one look-up per distinct pair of (class of the node, what is held on
it); the exact allocator runs once per pair that was never seen. Answers are positions of devices;
they become allocations of a node's own devices when asked for. Nothing here changes an allocation
state.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from kai_py.api.records.core import Node
from kai_py.api.records.resource import DeviceClass, ResourceClaim
from kai_py.dra.allocator import Allocated, Answer, allocate
from kai_py.dra.claims import plan_claims
from kai_py.dra.errors import AllocationError
from kai_py.dra.features import Choice
from kai_py.dra.fleet_layout import FleetLayout, Ints, Memory, lay_out_fleet
from kai_py.dra.holdings import DeviceState
from kai_py.dra.inventory import Inventory
from kai_py.dra.node_classes import LOCALITY, NodeClasses
from kai_py.dra.question import Alternatives, Question, Terms
from kai_py.dra.search import DEFAULT_BUDGET
from kai_py.dra.table_expressions import TableExpressions
from kai_py.dra.usage_numbers import UsageNumbers

QUESTIONS_KEPT = 256
"""Sets of claims whose answers are kept, the most recently used ones."""


@dataclass(slots=True, eq=False)
class Fleet:
    """Answers questions about all nodes; inventory and classes may change in between."""

    inventory: Inventory
    classes: Mapping[str, DeviceClass]
    budget: int = DEFAULT_BUDGET
    _memory: Memory = field(default_factory=Memory)
    _usage: UsageNumbers = field(default_factory=UsageNumbers)
    _expressions: TableExpressions = field(default_factory=TableExpressions)
    _layout: FleetLayout | None = None
    _questions: "OrderedDict[bytes, Question]" = field(default_factory=OrderedDict)

    def count_fits(
        self,
        claims: Sequence[ResourceClaim],
        nodes: tuple[Node, ...],
        state: DeviceState,
        *,
        limit: int,
        among: Ints | None = None,
    ) -> Ints:
        """(nodes,) int64: how many pods with such claims fit each node, one after the other.

        ``limit`` is the most that is worth knowing; ``among`` restricts the answer to some rows
        of ``nodes``, the others get 0. Claims that cannot be judged fit nowhere. Where nodes share
        a pool the counts hold for each node alone.
        """
        counts = np.zeros(len(nodes), dtype=np.int64)
        rows = np.arange(len(nodes), dtype=np.int64) if among is None else among
        if not claims:
            counts[rows] = limit
            return counts
        try:
            question, usage = self.look(claims, nodes, state)
        except AllocationError:
            return counts
        counts[rows] = question.counts(rows, usage, state, limit)
        return counts

    def alternatives(
        self,
        claims: Sequence[ResourceClaim],
        nodes: tuple[Node, ...],
        state: DeviceState,
        *,
        limit: int,
        among: Ints,
    ) -> Alternatives | None:
        """What of their lists of alternatives pods get on ``among``, rows of ``nodes``.

        None where the claims have no such lists. To be asked after ``count_fits``.
        """
        requests = (request for claim in claims for request in claim.spec.devices.requests)
        if not any(request.first_available for request in requests):
            return None
        try:
            question, usage = self.look(claims, nodes, state)
        except AllocationError:
            return None
        return question.alternatives(among, usage, limit)

    def allocate(
        self,
        claims: Sequence[ResourceClaim],
        nodes: tuple[Node, ...],
        row: int,
        state: DeviceState,
    ) -> Answer:
        """Find devices for ``claims`` on ``nodes[row]``, as ``allocator.allocate`` does."""
        if not claims:
            return Allocated(())
        try:
            question, usage = self.look(claims, nodes, state)
            step = question.step(row, int(usage[row]), state)
            if step.refusal is None:
                return Allocated(question.realise(claims, row, step.picks))
        except AllocationError as error:
            return error
        if isinstance(step.refusal, AllocationError):
            return self.in_own_words(claims, nodes[row], state)
        return step.refusal

    def look(
        self, claims: Sequence[ResourceClaim], nodes: tuple[Node, ...], state: DeviceState
    ) -> tuple[Question, Ints]:
        """Return what is known of ``claims``, and (nodes,) the number of what is held on each.

        :raises AllocationError: the claims concern no device, whatever the node.
        """
        question = self._question(claims, nodes)
        return question, self._usage.of_nodes(self._lay_out(nodes), state)

    def in_own_words(
        self, claims: Sequence[ResourceClaim], node: Node, state: DeviceState
    ) -> Answer:
        """Find the fault again for the node and claims in question, whose names it tells."""
        return allocate(claims, node, self.inventory, state, self.classes, budget=self.budget)

    def _lay_out(self, nodes: tuple[Node, ...]) -> FleetLayout:
        known = self._layout
        if known is None or known.nodes is not nodes or known.revision != self.inventory.revision:
            known = self._layout = lay_out_fleet(self.inventory, nodes, self._memory)
            self._expressions.layout = known
        return known

    def _question(self, claims: Sequence[ResourceClaim], nodes: tuple[Node, ...]) -> Question:
        key = msgspec.msgpack.encode([claim.spec for claim in claims])
        question = self._questions.get(key)
        if question is None or any(
            self.classes.get(known.metadata.name) is not known for known in question.device_classes
        ):
            question = self._questions[key] = self._ask(claims)
            if len(self._questions) > QUESTIONS_KEPT:
                self._questions.popitem(last=False)
        self._questions.move_to_end(key)
        question.look_at(self._lay_out(nodes))
        return question

    def _ask(self, claims: Sequence[ResourceClaim]) -> Question:
        inventory = self.inventory
        planned = plan_claims(claims, self.classes, inventory.features)
        near = LOCALITY if inventory.choice is Choice.BEST_FIT else ()
        return Question(
            claims=planned,
            sample=tuple(claims),
            device_classes=tuple(option.device_class for option in planned.options),
            alike=NodeClasses(planned, near),
            terms=Terms(
                inventory.features, inventory.choice, self._expressions, self._usage, self.budget
            ),
        )
