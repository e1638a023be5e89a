"""Topology domains for pods that must, or should, be placed together.

``snapshot.labels`` defines topologies and their domains.

- A *required* level: all pods go into one domain of that level, or of a finer one.
- A *preferred* level: a single domain of that level if one fits all pods, else of the next coarser,
  up to no bound at all; there the pods go to few preferred domains near each other.
- Both: as preferred, but never coarser than required.

Within a level the tightest domain that fits all pods comes first, compared from the coarsest level
down and by name where they tie, so that large domains stay whole for those that need them. Pods
that need several domains fill the largest first, then those with the fewest hops to it in the tree
of levels; where pods of the group run already, the hops count from them. O(levels x nodes log
nodes) per query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kai_py.snapshot.resources import Bools, Ints
from kai_py.snapshot.tables.topology import NO_DOMAIN, TopologyLevel


@dataclass(frozen=True, slots=True)
class DomainCandidate:
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
    the group run already: only their domains of the required level are candidates.
    """
    finest = preferred
    if required is not None and (preferred is None or preferred < required):
        finest = required  # A coarser preferred level is met in any domain of the required one.
    coarsest = 0 if required is None else required
    allowed = (
        None if required is None or occupied is None else _same_domains(levels[required], occupied)
    )
    for position in range(len(levels) - 1 if finest is None else finest, coarsest - 1, -1):
        level = levels[position]
        sums = [level.sums(fitting) for fitting in replicas]
        capacities = [
            *(_domain_replicas(coarser, replicas[0], level.first) for coarser in levels[:position]),
            sums[0],
        ]
        fits_all = np.all([fit >= count for fit, count in zip(sums, counts, strict=True)], axis=0)
        for domain in _tightest_first(capacities, fits_all):
            mask = level.codes == domain
            if required is not None and (levels[required].codes[mask] == NO_DOMAIN).any():
                continue
            if allowed is not None:
                mask = mask & allowed
            if mask.any():
                finer = () if preferred is None else levels[position + 1 : preferred + 1]
                yield DomainCandidate(
                    level.names[domain], mask, _domain_ranks(finer, replicas[0] * mask, occupied)
                )
    if required is None:
        everywhere = np.ones(len(replicas[0]), dtype=np.bool_)
        finer = () if preferred is None else levels[: preferred + 1]
        yield DomainCandidate("", everywhere, _domain_ranks(finer, replicas[0], occupied))


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
