"""What stays the same while a gang is placed, and the nodes that it may use."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kai_py.plan.placement.preferences import (
    NO_PREFERENCES,
    Preferences,
    inside_domain,
)
from kai_py.plan.plan import Action
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.topology import DomainCandidate
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.shape import Shape


class Attempt(NamedTuple):
    """What stays the same while a gang is placed.

    ``explain``: whether what stops its pods is reported; finding that out costs time.
    """

    statement: Statement
    gang: Gang
    action: Action
    capacity: Capacity
    explain: bool


class NodeSet(NamedTuple):
    """Nodes that may be used, (nodes,) bool, and which of them the gang prefers.

    ``kept``: the domain to which the pods of a shape, by its number, are kept.
    """

    mask: Bools
    preferences: Preferences = NO_PREFERENCES
    kept: Mapping[int, DomainCandidate] = MappingProxyType({})

    def of(self, shape: Shape) -> "NodeSet":
        """Those for pods of ``shape``."""
        domain = self.kept.get(shape.number)
        if domain is None:
            return self
        preferences = inside_domain(self.preferences, domain.domain_rank)
        return NodeSet(self.mask & domain.mask, preferences)
