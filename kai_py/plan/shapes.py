"""What kind of pods are these, which are the largest, and how empty is a node for them?"""

from collections.abc import Iterable, Sequence

import numpy as np

from kai_py.api.gpu_share import CARD
from kai_py.snapshot.gangs import Member
from kai_py.snapshot.resources import BASE_RESOURCES, Floats, ResourceIndex
from kai_py.snapshot.shape import Shape


def by_shape(members: Sequence[Member]) -> list[list[Member]]:
    """Members grouped by shape, the largest first; order within a group is kept.

    Those of one size stand in the order of their first pods. Labels tell pods apart even if their
    numbers don't: those of ``moves`` get theirs late.
    """
    if len(members) == 1:
        return [list(members)]
    groups: dict[object, list[Member]] = {}
    for member in members:
        shape = member.shape
        key = (shape.number, *sorted(shape.labels.items())) if shape.labels else shape.number
        groups.setdefault(key, []).append(member)
    return largest_first(groups.values())


def largest_first(groups: Iterable[list[Member]]) -> list[list[Member]]:
    """Groups of pods of one shape by their size; those of one size keep their order."""
    return sorted(groups, key=_size, reverse=True)


def wants_devices(shape: Shape) -> bool:
    """Whether a pod of the shape asks for anything beyond the base resources."""
    extended = any(name not in BASE_RESOURCES for name in shape.requests)
    return bool(shape.claims) or extended or shape.gpu_share is not None


def _size(group: Sequence[Member]) -> tuple[float, float, float]:
    charge, requests = group[0].charge, group[0].shape.requests
    return (
        charge.get("gpu", 0.0),
        requests.get("cpu", 0.0),
        requests.get("memory", 0.0),
    )


def slack(shape: Shape, resources: ResourceIndex, free: Floats) -> Floats:
    """(nodes,) how empty a node is in the resource the shape is packed by."""
    row = slack_row(shape, resources)
    return np.zeros(free.shape[1]) if row is None else free[row]


def slack_row(shape: Shape, resources: ResourceIndex) -> int | None:
    """The row of that resource; None where no node has it."""
    extended = [name for name in shape.requests if name not in BASE_RESOURCES]
    if shape.gpu_share is not None:
        extended.insert(0, CARD)
    return resources.positions.get(extended[0] if extended else "cpu")
