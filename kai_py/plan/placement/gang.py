"""Placement of a gang: down its tree, largest shape first, all pods of a shape in one fill.

A subgroup with a topology constraint is tried in one domain after the other; its children are
placed inside that domain. The caller opens a trial and undoes it if placing fails. Each fill sees
what the fills before it took, so the result is the same as placing pod by pod.

Small gangs that do not fit this way, because of the sizes of their pods, of rules between them or
of the domains of their subgroups, are placed by an exact search (``exact``). Pods that required
affinity ties together are placed in one domain (``affinity``).
"""

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
from msgspec import Struct, field

from kai_py.api.groups import grouped
from kai_py.grouping.gang import Subgroup, has_topology_constraint
from kai_py.plan.placement.affinity import dependents_last
from kai_py.plan.placement.attempt import (
    Attempt,
    NodeSet,
    by_shape,
    largest_first,
    orders_of,
    place_in_turn,
)
from kai_py.plan.placement.claim_reach import choices_for_parts, share_claims
from kai_py.plan.placement.compute_domains import (
    MAX_CLIQUES_TO_TRY,
    CliqueQuery,
    ComputeDomains,
    DomainPart,
    clique_choices,
    no_clique,
)
from kai_py.plan.placement.exact import (
    RuleSearch,
    SearchSteps,
    can_assign,
    can_search,
    place_exactly,
)
from kai_py.plan.placement.pods import Parts, ShapePlacer
from kai_py.plan.placement.preferences import NEAR_GANG, inside_domain
from kai_py.plan.placement.reasons import (
    UNEXPLAINED,
    Unschedulable,
    with_refusals,
    with_reserved_nodes,
    with_spares,
)
from kai_py.plan.placement.together import TogetherSearch
from kai_py.plan.placement.topology import (
    domain_candidates,
    largest_domain,
    members_of,
    near_nodes,
    occupied_domains,
    subgroup_domains,
    topology_unsatisfied,
)
from kai_py.plan.plan import Action
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.reservations import Reservations, exclude_rows, refusing_rows
from kai_py.plan.state.statement import Statement
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.shape import Shape


class Placer(Struct, frozen=True):
    """Places gangs in one cycle. ``search_steps``: the budget of exact searches with pod rules."""

    shapes: ShapePlacer = field(default_factory=ShapePlacer)
    reservations: Reservations = field(default_factory=Reservations)
    poll: Callable[[], None] = lambda: None
    """Called before each placement that is tried; raises where the cycle is over its limit."""
    search_steps: SearchSteps = field(default_factory=SearchSteps)
    compute_domains: ComputeDomains | None = None
    together: bool = False
    """Whether to allocate the claims of all pods on a node in one search for devices."""

    def place(
        self,
        statement: Statement,
        gang: Gang,
        members: Sequence[Member],
        action: Action,
        *,
        capacity: Capacity,
        allowed: Bools | None = None,
        explain: bool = True,
    ) -> Unschedulable | None:
        """Place all of ``members``; None, or why they can't be placed.

        Without success, part of them may be placed: call it in a trial. ``allowed``: (nodes,) bool,
        None for all nodes. ``explain``: whether to find out why; else ``UNEXPLAINED`` is returned.
        """
        self.poll()
        attempt = Attempt(statement, gang, action, capacity, explain)
        refusing = refusing_rows(statement.snapshot, gang)
        if refusing:
            allowed = exclude_rows(refusing, allowed, len(statement.snapshot.nodes))
        reason = self._place_avoiding_spares(attempt, members, allowed)
        return reason if reason is None or not refusing else with_refusals(reason, gang)

    def _place_avoiding_spares(
        self, attempt: Attempt, members: Sequence[Member], allowed: Bools | None
    ) -> Unschedulable | None:
        """Place them on spare nodes only if need be, and only if their gang is a repair."""
        spares, gang = self.reservations.spares, attempt.gang
        if not spares.exist:
            return self._place_allowed(attempt, members, allowed)
        closed = dict.fromkeys((*spares.closed(gang), *spares.usable(gang)))
        for rows in (tuple(closed), spares.closed(gang)):
            nodes = exclude_rows(rows, allowed, len(attempt.statement.snapshot.nodes))
            with attempt.statement.trial() as trial:
                reason = self._place_allowed(attempt, members, nodes)
                if reason is None:
                    trial.keep()
            if reason is None or not spares.usable(gang):
                break
        closed_now = spares.closed(gang)
        return reason if reason is None or not closed_now else with_spares(reason, len(closed_now))

    def _place_allowed(
        self, attempt: Attempt, members: Sequence[Member], allowed: Bools | None
    ) -> Unschedulable | None:
        """Place them on nodes that are ``allowed`` and not reserved for other gangs."""
        statement, gang, action, capacity, explain = attempt
        starts_now = capacity is Capacity.IDLE
        reserved = self.reservations.rows_closed_to(gang, starts_now=starts_now)
        if reserved:
            allowed = exclude_rows(reserved, allowed, len(statement.snapshot.nodes))
        near, anywhere = near_nodes(statement, gang), gang.tree.is_unconstrained_leaf
        parts = self._domain_parts(statement, gang, members)
        single = len(members) == 1 and near is None and anywhere and not parts
        if single:
            row, fits_nowhere = self._row_for_one(statement, members[0].shape, capacity, allowed)
            if row is not None:
                statement.place(gang, members, row, action, capacity=capacity)
                return None
            if fits_nowhere and not explain:
                return UNEXPLAINED
        if allowed is None:
            allowed = np.ones(len(statement.snapshot.nodes), np.bool_)
        where = NodeSet(allowed)
        if single:
            reason = self.shapes.place(attempt, members, where)
        elif parts:
            reason = self._place_in_cliques(attempt, members, where, near, parts)
        else:
            reason = self._place_near(attempt, members, where, near)
        if reason is None or not reserved or not explain:
            return reason
        replicas = self._replicas_on(attempt, members, reserved)
        return with_reserved_nodes(reason, len(reserved), replicas)

    def _row_for_one(
        self, statement: Statement, shape: Shape, capacity: Capacity, allowed: Bools | None
    ) -> tuple[int | None, bool]:
        """The row for a single pod, and whether it is known to fit on no node that is ``allowed``.

        Neither is known where more than resources decides, or where several nodes are allowed but
        not all. For a nominated pod one is allowed.
        """
        if self.shapes.fits.fits_nowhere(statement, shape, capacity):
            return None, True
        if allowed is None:
            running = self.shapes.single_pod_fit(statement, shape, capacity)
            return None if running is None else running.first_row(), False
        rows = np.flatnonzero(allowed)
        if len(rows) != 1:
            return None, not len(rows)
        fit = self.shapes.fits.running_fit(statement, shape, capacity)
        if fit is None:
            return None, False
        return (int(rows[0]), False) if fit.holds(int(rows[0])) else (None, True)

    def _domain_parts(
        self, statement: Statement, gang: Gang, members: Sequence[Member]
    ) -> Sequence[DomainPart]:
        domains = self.compute_domains
        return () if domains is None else domains.parts(statement, gang, members)

    def _place_in_cliques(
        self,
        attempt: Attempt,
        members: Sequence[Member],
        node_set: NodeSet,
        near: Bools | None,
        parts: Sequence[DomainPart],
    ) -> Unschedulable | None:
        """Place the pods of each ComputeDomain in one clique, the others anywhere."""
        domains, inner = self.compute_domains, None
        if domains is None:
            return self._place_near(attempt, members, node_set, near)
        query = CliqueQuery(domains, attempt, self.shapes)
        choices = clique_choices(query, parts, node_set)
        for inside in islice(choices, MAX_CLIQUES_TO_TRY):
            self.poll()
            with attempt.statement.trial() as trial:
                explain = attempt.explain and inner is None
                inside_one = attempt._replace(explain=explain)
                reason = self._place_near(inside_one, members, inside, near)
                if reason is None:
                    trial.keep()
                    return None
            inner = inner or reason
        if not attempt.explain:
            return UNEXPLAINED
        return no_clique(query, parts, node_set, inner)

    def _max_replicas(self, attempt: Attempt, part: Sequence[Member], node_set: NodeSet) -> Ints:
        shape = part[0].shape
        return self.shapes.max_replicas(attempt, shape, node_set.of(shape).mask, len(part))

    def _replicas_on(self, attempt: Attempt, members: Sequence[Member], rows: Sequence[int]) -> int:
        """How many of the pods fit on these nodes, each shape by itself."""
        inside = ~exclude_rows(tuple(rows), None, len(attempt.statement.snapshot.nodes))
        sizes = [(part[0].shape, len(part)) for part in by_shape(members)]
        return sum(int(self.shapes.replicas(attempt, s, inside, n).sum()) for s, n in sizes)

    def _place_near(
        self,
        attempt: Attempt,
        members: Sequence[Member],
        node_set: NodeSet,
        near: Bools | None,
    ) -> Unschedulable | None:
        """Place them on the nodes ``near`` another gang; if not all fit, prefer these nodes."""
        tree = attempt.gang.tree
        if near is None:
            return self._place_group(attempt, tree, members, node_set)
        with attempt.statement.trial() as trial:
            if (
                self._place_group(
                    attempt, tree, members, node_set._replace(mask=node_set.mask & near)
                )
                is None
            ):
                trial.keep()
                return None
        return self._place_group(
            attempt, tree, members, node_set._replace(preferences={NEAR_GANG: near})
        )

    def _place_group(
        self, attempt: Attempt, group: Subgroup, members: Sequence[Member], node_set: NodeSet
    ) -> Unschedulable | None:
        if group.topology is None:
            return self._place_inside(attempt, group, members, node_set)
        shapes = by_shape(members)
        fitting = [self._max_replicas(attempt, each, node_set) for each in shapes]
        query = (attempt.statement, attempt.gang, group, fitting, [len(each) for each in shapes])
        found = domain_candidates(*query)
        if isinstance(found, Unschedulable):
            return found
        for candidate in found:
            self.poll()
            with attempt.statement.trial() as trial:
                preferences = inside_domain(node_set.preferences, candidate.domain_rank)
                mask = node_set.mask & candidate.mask
                inside = node_set._replace(mask=mask, preferences=preferences)
                if self._place_inside(attempt, group, members, inside) is None:
                    trial.keep()
                    return None
        if not attempt.explain:
            return UNEXPLAINED
        occupied = occupied_domains(attempt.statement, attempt.gang, group)
        best = largest_domain(*query)
        return topology_unsatisfied(attempt.gang, group, len(members), best, occupied=occupied)

    def _place_inside(
        self, attempt: Attempt, group: Subgroup, members: Sequence[Member], node_set: NodeSet
    ) -> Unschedulable | None:
        if any(has_topology_constraint(child) for child in group.children):
            return self._place_subgroups(attempt, group, members, node_set)
        parts = self._most_constrained_first(attempt, by_shape(members), node_set)
        if self.together:
            search = TogetherSearch(attempt, parts, node_set, self.shapes.fits, self.search_steps)
            return None if search.place() else UNEXPLAINED
        pod_rules = attempt.statement.pod_rules
        has_rules = len(members) > 1 and any(pod_rules.concern(part[0].shape) for part in parts)
        if has_rules or share_claims(parts):
            return self._place_with_rules(attempt, parts, node_set)
        if len(parts) > 1 and self._can_search(attempt, parts):
            return self._place_mixed(attempt, parts, node_set)
        if len(parts) == 1:
            return self.shapes.place(attempt, parts[0], node_set)
        return self.shapes.place_in_first(attempt, parts, [[node_set] * len(parts)])

    def _place_subgroups(
        self, attempt: Attempt, group: Subgroup, members: Sequence[Member], node_set: NodeSet
    ) -> Unschedulable | None:
        """Place one subgroup after the other; if some do not fit, all by exact search."""
        subgroups = [(each, own) for each in group.children if (own := members_of(each, members))]
        reason = place_in_turn(
            attempt,
            subgroups,
            lambda attempt, subgroup: self._place_group(attempt, *subgroup, node_set),
            orders=orders_of(members),
        )
        if reason is None:
            return None
        domains, leaves = subgroup_domains(attempt.statement, attempt.gang, group)
        by_domains = grouped(members, lambda member: leaves[member.subgroup])
        by_size = largest_first(part for own in by_domains.values() for part in by_shape(own))
        if not self._can_search(attempt, by_size):
            return reason
        parts = dependents_last(attempt.statement, by_size, attempt.capacity)
        required = [leaves[part[0].subgroup] for part in parts]
        return None if self._search(attempt, parts, node_set, domains, required) else reason

    def _can_search(self, attempt: Attempt, parts: Parts) -> bool:
        """Whether an exact search may place the parts, with the steps of this placer."""
        return attempt.action is self.search_steps.action and can_search(attempt.statement, parts)

    def _search(
        self,
        attempt: Attempt,
        parts: Parts,
        node_set: NodeSet,
        domains: Sequence[Ints] = (),
        subgroups: Sequence[Sequence[int]] = (),
    ) -> bool:
        """Place all parts by the search pod by pod, or nothing; arguments as of ``RuleSearch``."""
        search = RuleSearch(
            attempt,
            parts,
            fits=self.shapes.fits,
            mask=node_set.mask,
            steps=self.search_steps,
            domains=domains,
            subgroups=subgroups,
        )
        return search.place()

    def _place_with_rules(
        self, attempt: Attempt, parts: Parts, node_set: NodeSet
    ) -> Unschedulable | None:
        """Place pods with rules, or with claims that they share, where they can be together."""
        parts = dependents_last(attempt.statement, parts, attempt.capacity)
        choices = choices_for_parts(self.shapes, attempt, parts, node_set)
        reason = self.shapes.place_in_first(attempt, parts, choices)
        if reason is None or not self._can_search(attempt, parts):
            return reason
        return None if self._search(attempt, parts, node_set) else reason

    def _most_constrained_first(
        self, attempt: Attempt, parts: Sequence[list[Member]], node_set: NodeSet
    ) -> Sequence[list[Member]]:
        """The parts, largest pods first; of one size, those that may use fewer nodes first."""
        if len(parts) < 2:
            return parts

        def open_nodes(part: Sequence[Member]) -> int:
            static = self.shapes.fits.static_fit(attempt.statement, part[0].shape, attempt.capacity)
            return int((static.mask & node_set.of(part[0].shape).mask).sum())

        return largest_first(sorted(parts, key=open_nodes))

    def _place_mixed(
        self, attempt: Attempt, parts: Parts, node_set: NodeSet
    ) -> Unschedulable | None:
        """Place the largest pods first; if some do not fit, place all by exact search."""
        statement, capacity = attempt.statement, attempt.capacity
        reason = self.shapes.place_in_first(attempt, parts, [[node_set] * len(parts)])
        if reason is None:
            return None
        if attempt.action is not Action.ALLOCATE or not can_assign(statement, parts):
            return None if self._search(attempt, parts, node_set) else reason
        masks = [
            self.shapes.fits.static_fit(statement, part[0].shape, capacity).mask
            & node_set.of(part[0].shape).mask
            for part in parts
        ]
        found = place_exactly(attempt, parts, masks)
        return None if found else reason
