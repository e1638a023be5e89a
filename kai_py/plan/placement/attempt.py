"""The arguments of one attempt to place a gang, and the nodes that it may use."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kai_py.plan.placement.preferences import NO_PREFERENCES, Preferences, inside_domain
from kai_py.plan.plan import Action
from kai_py.plan.state.capacity import Capacity
from kai_py.plan.state.statement import Statement
from kai_py.policy.topology import DomainCandidate
from kai_py.snapshot.gangs import Gang
from kai_py.snapshot.resources import Bools
from kai_py.snapshot.shape import Shape


class Attempt(NamedTuple):
    """The arguments that stay the same while a gang is placed.

    ``explain``: whether to find out why pods can't be placed, which takes time.
    """

    statement: Statement
    gang: Gang
    action: Action
    capacity: Capacity
    explain: bool


class NodeSet(NamedTuple):
    """The nodes that may be used.

    ``mask``: (nodes,) bool. ``preferences``: which of them the gang prefers. ``domains``: by number
    of a shape, the domain in which its pods must stay.
    """

    mask: Bools
    preferences: Preferences = NO_PREFERENCES
    domains: Mapping[int, DomainCandidate] = MappingProxyType({})

    def of(self, shape: Shape) -> "NodeSet":
        """The nodes for pods of ``shape``."""
        domain = self.domains.get(shape.number)
        if domain is None:
            return self
        preferences = inside_domain(self.preferences, domain.domain_rank)
        return NodeSet(self.mask & domain.mask, preferences)
