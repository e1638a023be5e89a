"""Topology domains for pods that must, or should, be placed together.

``snapshot.labels`` defines topologies and their domains.

- A *required* level: all pods go into one domain of that level, or of a finer one.
- A *preferred* level: a single domain of that level if one fits all pods, else of the next coarser,
  up to no bound at all; there the pods go to few preferred domains near each other.
- Both: as preferred, but never coarser than required. Where the preferred level is the coarser one,
  domains of the required level that are in none of it come last.

Within a level the tightest domain that fits all pods comes first, compared from the coarsest level
down and by name where they tie, so that large domains stay whole for those that need them. Pods
that need several domains fill the largest first, then those with the fewest hops to it in the tree
of levels. Where pods of the group run already, the hops count from them, and domains come first
that keep all pods of the group together. O(levels x nodes log nodes) per query.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.topology import NO_DOMAIN, TopologyLevel


class DomainCandidate(Struct, frozen=True):
    """A domain to try; ``mask``: (nodes,) bool. The unbounded one has no name.

    ``domain_rank``: (nodes,) higher first; None if its nodes are equal.
    """

    name: str
    mask: Bools
    domain_rank: Ints | None = None


def candidate_domains(
    levels: Sequence[TopologyLevel],
    replicas: Sequence[Ints],
    counts: Sequence[int],
    *,
    required: int | None,
    preferred: int | None,
    occupied: Bools | None = None,
) -> Iterator[DomainCandidate]:
    """Domains to try, in order.

    ``replicas``: per shape (nodes,) how many of its pods fit; ``counts``: how many are needed.
    ``required``, ``preferred``: positions in ``levels``. ``occupied``: (nodes,) bool, where pods of
    the group run already: only their domains of the required level are candidates, and the finest
    domain that holds all of them is used up first, then the next coarser one.
    """
    finest = preferred
    if required is not None and (preferred is None or preferred < required):
        finest = required  # A coarser preferred level is met where its domain is known.
    used = levels if finest is None else levels[: finest + 1]
    tried: set[tuple[int, int]] = set()
    coarser = levels[preferred] if preferred is not None and preferred != finest else None
    for coarsest, within in _scopes(used, required, occupied, coarser):
        for position in range(len(used) - 1, coarsest - 1, -1):
            finer = () if preferred is None else levels[position + 1 : preferred + 1]
            for domain in _fitting_domains(used[: position + 1], replicas, counts, within):
                if (position, domain) not in tried:
                    tried.add((position, domain))
                    mask = used[position].codes == domain
                    rank = _domain_ranks(finer, replicas[0] * mask, occupied)
                    yield DomainCandidate(used[position].names[domain], mask, rank)
    if required is None:
        everywhere = np.ones(len(replicas[0]), dtype=np.bool_)
        finer = () if preferred is None else levels[: preferred + 1]
        yield DomainCandidate("", everywhere, _domain_ranks(finer, replicas[0], occupied))


def _scopes(
    levels: Sequence[TopologyLevel],
    required: int | None,
    occupied: Bools | None,
    preferred: TopologyLevel | None,
) -> Iterator[tuple[int, Bools]]:
    """Nodes on which to try domains, and the coarsest level to try there, as its position.

    First the domains that hold all ``occupied`` nodes, from the finest up, then all nodes allowed;
    each first without nodes that have no domain of a ``preferred`` level coarser than the others.
    """
    for coarsest, within in _allowed(levels, required, occupied):
        if preferred is not None:
            yield coarsest, within & (preferred.codes != NO_DOMAIN)
        yield coarsest, within


def _allowed(
    levels: Sequence[TopologyLevel], required: int | None, occupied: Bools | None
) -> Iterator[tuple[int, Bools]]:
    coarsest = 0 if required is None else required
    for position in range(len(levels) - 1, coarsest - 1, -1) if occupied is not None else ():
        codes = levels[position].codes
        domains = np.unique(codes[occupied])
        if len(domains) == 1 and domains[0] != NO_DOMAIN:
            yield position, codes == domains[0]
    if required is None:
        yield coarsest, np.ones(len(levels[0].codes) if levels else 0, dtype=np.bool_)
    elif occupied is None:
        yield coarsest, levels[required].codes != NO_DOMAIN
    else:
        yield coarsest, _same_domains(levels[required], occupied)


def _fitting_domains(
    levels: Sequence[TopologyLevel], replicas: Sequence[Ints], counts: Sequence[int], within: Bools
) -> list[int]:
    """Domains of the last level that fit the pods ``within`` the nodes given, tightest first."""
    *coarser, level = levels
    sums = [level.sums(fitting) for fitting in replicas]
    fits = [total >= count for total, count in zip(sums, counts, strict=True)]
    capacities = [_domain_replicas(each, replicas[0], level.first) for each in coarser]
    return _tightest_first([*capacities, sums[0]], np.all([within[level.first], *fits], axis=0))


def _tightest_first(replicas: Sequence[Ints], fits: Bools) -> list[int]:
    """Domains that fit the pods, by their replicas (domains,) per level, coarsest level first."""
    order = np.lexsort(replicas[::-1])
    domains: list[int] = order[fits[order]].tolist()
    return domains


def _domain_replicas(level: TopologyLevel, replicas: Ints, rows: Ints) -> Ints:
    """(rows,) replicas that fit into the domain of each of these nodes, 0 where it has none."""
    codes = level.codes[rows]
    # NO_DOMAIN is -1: the appended element keeps the index valid when there are no domains.
    sums = np.append(level.sums(replicas), 0)
    return np.asarray(np.where(codes == NO_DOMAIN, 0, sums[codes]))


def _same_domains(level: TopologyLevel, occupied: Bools) -> Bools:
    """(nodes,) bool: in a domain that has an occupied node."""
    domains = np.unique(level.codes[occupied])
    return np.isin(level.codes, domains[domains != NO_DOMAIN])


def _domain_ranks(
    levels: Sequence[TopologyLevel], replicas: Ints, occupied: Bools | None
) -> Ints | None:
    """(nodes,) an order, higher first, that fills one domain after the other, nearest first.

    From the coarsest level down: domains of ``occupied`` nodes, then the largest, then by name. So
    everything below a domain comes before its siblings.
    """
    if not levels:
        return None
    keys: list[Ints] = []
    for level in levels:
        named = level.codes != NO_DOMAIN
        in_occupied = named if occupied is None else _same_domains(level, occupied)
        distance = np.where(named, np.where(in_occupied, 0, 1), 2)
        keys += [
            distance,
            -_domain_replicas(level, replicas, np.arange(len(replicas))),
            level.codes,
        ]
    order, rank = np.unique(np.column_stack(keys), axis=0, return_inverse=True)
    ranks: Ints = len(order) - rank.reshape(-1)
    return ranks
