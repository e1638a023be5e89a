"""The pods of a gang by shape, the largest first: what is hardest to place is placed first."""

from collections.abc import Iterable, Sequence

from kai_py.snapshot.gangs import Member


def by_shape(members: Sequence[Member]) -> list[list[Member]]:
    """Members grouped by shape, the largest first; groups and pods of one size keep their order.

    Pods with other labels are in other groups even if their shapes have the same number.
    """
    if len(members) == 1:
        return [list(members)]
    groups: dict[object, list[Member]] = {}
    last: object = None
    group: list[Member] = []
    for member in members:
        shape = member.shape
        # Mostly neighbours share their shape, so their group is not looked up again.
        if shape is not last:
            key = (shape.number, *sorted(shape.labels.items())) if shape.labels else shape.number
            last, group = shape, groups.setdefault(key, [])
        group.append(member)
    return largest_first(groups.values())


def largest_first(groups: Iterable[list[Member]]) -> list[list[Member]]:
    """Groups, each of one shape, by the size of their pods; equal sizes keep their order."""
    return sorted(groups, key=_size, reverse=True)


def _size(group: Sequence[Member]) -> tuple[float, float, float]:
    requests = group[0].shape.requests
    return (
        group[0].charged_gpus,
        requests.get("cpu", 0.0),
        requests.get("memory", 0.0),
    )
