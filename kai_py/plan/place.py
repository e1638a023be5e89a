"""Placing the pods of a gang: largest shape first, all pods of a shape in one fill.

The caller opens the trial; a failure leaves it to be undone. Each fill sees what the fills before
it took, so the result is the same as placing pod by pod.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kai_py.plan.decisions import Action
from kai_py.plan.reasons import Obstacle, no_room
from kai_py.plan.room import Room
from kai_py.plan.statement import Statement
from kai_py.policy.fill import Strategy, fill
from kai_py.policy.fit import StaticFit, StaticFits, copies_that_fit
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.resources import BASE_RESOURCES, Bools, Floats, ResourceIndex
from kai_py.snapshot.shape import Shape

GPU_NODE_MALUS = 0.5
"""Pods without devices avoid GPU nodes; below 1, so that any stated preference outweighs it."""


@dataclass(frozen=True, slots=True)
class Placer:
    """How pods are placed in this cycle: the static verdicts so far and the strategies."""

    statics: StaticFits = field(default_factory=StaticFits)
    gpu_strategy: Strategy = Strategy.BINPACK
    cpu_strategy: Strategy = Strategy.BINPACK

    def place(
        self,
        statement: Statement,
        gang: Gang,
        members: Sequence[Member],
        action: Action,
        *,
        room: Room,
        allowed: Bools | None = None,
    ) -> Obstacle | None:
        """Place all of ``members`` or say what stops them; ``allowed``: (nodes,) bool."""
        for group in by_shape(members):
            obstacle = self._place_shape(statement, gang, group, action, room=room, allowed=allowed)
            if obstacle is not None:
                return obstacle
        return None

    def _place_shape(
        self,
        statement: Statement,
        gang: Gang,
        members: Sequence[Member],
        action: Action,
        *,
        room: Room,
        allowed: Bools | None,
    ) -> Obstacle | None:
        shape = members[0].shape
        nodes = statement.snapshot.nodes
        allocatable = nodes.allocatable
        static = self.statics.of(shape, nodes)
        mask = static.mask.copy() if allowed is None else static.mask & allowed
        if shape.host_ports:
            mask &= statement.port_free(shape)
        left = list(members)
        while left:
            free = statement.free(room)
            copies = copies_that_fit(shape, statement.snapshot.resources, free, mask, allocatable)
            count = 1 if shape.shares_claims and len(left) == len(members) else len(left)
            fitting = copies
            if shape.needs_devices:
                found = statement.devices.copies(shape, copies > 0, count, room)
                fitting = np.minimum(copies, found)
            chunks = fill(
                count,
                fitting,
                self._preference(statement, shape, static),
                _slack(shape, statement.snapshot.resources, free),
                self._strategy(shape),
            )
            if sum(pods for _, pods in chunks) < count:
                done = len(members) - len(left) + sum(pods for _, pods in chunks)
                return no_room(
                    statement, shape, static, copies=copies, needed=len(members), found=done
                )
            for row, pods in chunks:
                placed = statement.place(gang, left[:pods], row, action, room=room)
                del left[:placed]
                if placed < pods:
                    mask[row] = False
                    break
        return None

    def _strategy(self, shape: Shape) -> Strategy:
        return self.gpu_strategy if wants_devices(shape) else self.cpu_strategy

    def _preference(self, statement: Statement, shape: Shape, static: StaticFit) -> Floats:
        if wants_devices(shape):
            return static.preference
        extended = statement.snapshot.nodes.allocatable[len(BASE_RESOURCES) :]
        return static.preference - GPU_NODE_MALUS * extended.any(axis=0)


def by_shape(members: Sequence[Member]) -> list[list[Member]]:
    """Members grouped by shape, the hardest to place first; order within a group is kept."""
    groups: dict[int, list[Member]] = {}
    for member in members:
        groups.setdefault(member.shape.number, []).append(member)
    return sorted(groups.values(), key=_size, reverse=True)


def wants_devices(shape: Shape) -> bool:
    """Whether a pod of the shape asks for anything beyond the base resources."""
    return bool(shape.claims) or any(name not in BASE_RESOURCES for name in shape.requests)


def _size(group: Sequence[Member]) -> tuple[float, float, float, int]:
    charge, requests = group[0].charge, group[0].shape.requests
    return (
        charge.get("gpu", 0.0),
        requests.get("cpu", 0.0),
        requests.get("memory", 0.0),
        -group[0].shape.number,
    )


def _slack(shape: Shape, resources: ResourceIndex, free: Floats) -> Floats:
    """(nodes,) how empty a node is in the resource the shape is packed by."""
    extended = [name for name in shape.requests if name not in BASE_RESOURCES]
    row = resources.positions.get(extended[0] if extended else "cpu")
    return np.zeros(free.shape[1]) if row is None else free[row]
