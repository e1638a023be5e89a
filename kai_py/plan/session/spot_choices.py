"""Which gangs use spot nodes: workloads choose, within what their queues allow.

The ``spot`` of a queue, or of the nearest queue above it that sets one, decides if it is ``only``
or ``never``; a workload that contradicts it stays pending. Otherwise the workload chooses.

A gang restricted to spot nodes may fall back to on-demand nodes once it has waited for the time of
its fallback. Gangs fall back in the order of waiting, as long as the on-demand GPUs of such gangs
stay within ``maxGPUs`` of the queue that sets the fallback. A workload may set a longer time than
its queue, not a shorter one. A gang that fell back may use on-demand nodes as long as one of its
pods is on one.

The choice becomes part of the shapes of the pods, so whatever is computed once per shape is
computed once per choice. While nothing changes, gangs and shapes are the same objects in every
cycle. O(gangs) if any queue chooses, else O(gangs whose workloads choose).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec
from msgspec import Struct, structs

from kai_py.api.spot import DEFAULT_SPOT_LABELS, SpotFallback, SpotUse
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.nodes import SpotChoice, SpotLabelValues, spot_nodes
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.tables.queues import QueueInfo, inherited

NUMBERS_PER_CHOICE = 2**40
"""A shape with a choice has the number of the shape without one plus a multiple of this."""


class SpotRules(Struct, frozen=True):
    """``labels`` of spot nodes; ``price_ratio``: their price relative to on-demand nodes."""

    labels: SpotLabelValues = tuple(sorted(DEFAULT_SPOT_LABELS.items()))
    price_ratio: float = 0.4


DEFAULT_SPOT_RULES = SpotRules()


class CycleSpot(Struct, frozen=True):
    """The use of spot nodes in a cycle, by gang key.

    ``uses``: the gang's choice; ``fallback_at``: when a gang restricted to spot nodes may fall
    back, seconds since the epoch; ``over_budget``: the queue that has no budget left for the gang's
    fallback.
    """

    rules: SpotRules = DEFAULT_SPOT_RULES
    uses: Mapping[str, SpotUse] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    fallback_at: Mapping[str, float] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    over_budget: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))


NO_SPOT = CycleSpot()


class _QueueSpot(Struct, frozen=True):
    """What applies to the gangs of a queue; ``budget``: the queue that sets the fallback."""

    use: SpotUse | None = None
    fallback: SpotFallback | None = None
    budget: str = ""


class _Fallbacks(Struct, frozen=True):
    """Keys of the ``gangs`` that fall back; the other fields as of ``CycleSpot``."""

    gangs: set[str] = msgspec.field(default_factory=set)
    fallback_at: dict[str, float] = msgspec.field(default_factory=dict)
    over_budget: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass
class SpotChoices:
    """The gangs and shapes with choices of the last cycle, to be reused."""

    _gangs: dict[str, tuple[Gang, SpotUse, str, Gang]] = field(default_factory=dict)
    _shapes: dict[tuple[int, SpotUse], Shape] = field(default_factory=dict)
    _last: tuple[Snapshot, Snapshot] | None = None

    def applied(self, snapshot: Snapshot, rules: SpotRules) -> tuple[Snapshot, CycleSpot]:
        """``snapshot`` with the choices in its shapes, and the choices themselves."""
        queues = _queue_spots(snapshot.queues)
        by_queue = any(each.use is not None for each in queues.values())
        keys: Iterable[str] = snapshot.gangs if by_queue else snapshot.choosing_spot
        uses, problems = _uses(snapshot, keys, queues)
        if not uses:
            self._gangs, self._shapes, self._last = {}, {}, None
            return snapshot, CycleSpot(rules)
        fallbacks = _fallbacks(snapshot, rules, uses, queues)
        known, self._gangs = self._gangs, {}
        shapes, self._shapes = self._shapes, {}
        gangs, unchanged = dict(snapshot.gangs), True
        for key, use in uses.items():
            effective = SpotUse.PREFER if key in fallbacks.gangs else use
            gang, problem = gangs[key], problems.get(key, "")
            before = known.get(key)
            if before is not None and before[0] is gang and before[1:3] == (effective, problem):
                made = before[3]
                for member in (*made.members, *made.placeholders):
                    self._keep(member.shape, effective)
            else:
                unchanged = False
                choice = SpotChoice(effective, rules.labels)
                made = self._with_choice(gang, choice, shapes, problem)
            self._gangs[key] = (gang, effective, problem, made)
            gangs[key] = made
        if self._last is None or self._last[0] is not snapshot or not unchanged:
            self._last = snapshot, structs.replace(snapshot, gangs=gangs)
        spot = CycleSpot(rules, uses, fallbacks.fallback_at, fallbacks.over_budget)
        return self._last[1], spot

    def _keep(self, shape: Shape, use: SpotUse) -> None:
        self._shapes[shape.number % NUMBERS_PER_CHOICE, use] = shape

    def _with_choice(
        self,
        gang: Gang,
        choice: SpotChoice,
        shapes: Mapping[tuple[int, SpotUse], Shape],
        problem: str,
    ) -> Gang:
        def chosen(member: Member) -> Member:
            key = member.shape.number, choice.use
            shape = self._shapes.get(key) or shapes.get(key)
            if shape is None or shape.spot != choice:
                offset = (1 + list(SpotUse).index(choice.use)) * NUMBERS_PER_CHOICE
                shape = structs.replace(
                    member.shape, number=member.shape.number + offset, spot=choice
                )
            self._shapes[key] = shape
            return structs.replace(member, shape=shape)

        return structs.replace(
            gang,
            members=tuple(map(chosen, gang.members)),
            placeholders=tuple(map(chosen, gang.placeholders)),
            problem=gang.problem or problem,
        )


def _queue_spots(queues: Iterable[QueueInfo]) -> dict[str, _QueueSpot]:
    """By name of a queue, what it sets or inherits from the nearest queue above that sets it."""
    specs = tuple(queues)
    uses = inherited(specs, lambda spec: spec.spot)
    fallbacks = inherited(specs, lambda spec: spec if spec.spot_fallback is not None else None)
    if not (uses or fallbacks):
        return {}
    found: dict[str, _QueueSpot] = {}
    for name in (spec.name for spec in specs):
        setter = fallbacks.get(name)
        found[name] = _QueueSpot(
            uses.get(name),
            setter.spot_fallback if setter is not None else None,
            setter.name if setter is not None else "",
        )
    return found


def _uses(
    snapshot: Snapshot, keys: Iterable[str], queues: Mapping[str, _QueueSpot]
) -> tuple[dict[str, SpotUse], dict[str, str]]:
    """By gang key its choice, and what is wrong with it."""
    uses: dict[str, SpotUse] = {}
    problems: dict[str, str] = {}
    for key in keys:
        gang = snapshot.gangs[key]
        by_queue = queues.get(gang.queue, _QueueSpot()).use
        if by_queue is None or (by_queue is SpotUse.PREFER and gang.settings.spot is not None):
            if gang.settings.spot is not None:
                uses[key] = gang.settings.spot
            continue
        uses[key] = by_queue
        if gang.settings.spot not in (None, by_queue, SpotUse.PREFER):
            problems[key] = (
                f"{gang.owner.kind} {gang.owner.namespace}/{gang.owner.name}: "
                f"scheduling.kai.io/spot is {gang.settings.spot}, but spec.spot of queue "
                f'"{gang.queue}" or of one above it is {by_queue}; use another queue, or remove '
                "the annotation"
            )
    return uses, problems


def _fallbacks(
    snapshot: Snapshot,
    rules: SpotRules,
    uses: Mapping[str, SpotUse],
    queues: Mapping[str, _QueueSpot],
) -> _Fallbacks:
    """Which gangs that are restricted to spot nodes fall back, and what the others wait for."""
    only = [snapshot.gangs[key] for key, use in uses.items() if use is SpotUse.ONLY]
    nodes = snapshot.nodes
    on_spot = spot_nodes(rules.labels, nodes)
    spot = {name for name, row in nodes.positions.items() if on_spot[row]}
    found = _Fallbacks()
    used: dict[str, float] = {}
    for gang in only:
        outside = [m for m in gang.bound if m.node not in spot]
        if outside:
            found.gangs.add(gang.key)
            budget = queues.get(gang.queue, _QueueSpot()).budget
            used[budget] = used.get(budget, 0.0) + _gpus(outside)
    for gang in sorted(only, key=lambda each: (each.waiting_since, each.key)):
        if not gang.pending:
            continue
        rule = queues.get(gang.queue, _QueueSpot())
        after = _fallback_after(gang, rule)
        if after is None:
            continue
        if snapshot.now < gang.waiting_since + after:
            if gang.key not in found.gangs:
                found.fallback_at[gang.key] = gang.waiting_since + after
            continue
        needed = used.get(rule.budget, 0.0) + _gpus(gang.pending)
        most = rule.fallback.max_gpus if rule.fallback is not None else None
        if most is not None and needed > most:
            found.over_budget[gang.key] = rule.budget
            found.gangs.discard(gang.key)
            continue
        used[rule.budget] = needed
        found.gangs.add(gang.key)
    return found


def _fallback_after(gang: Gang, rule: _QueueSpot) -> float | None:
    """For how many seconds a gang waits for spot nodes; None: without end."""
    own, queue = gang.settings.spot_fallback_after, rule.fallback
    if queue is not None:
        return max(queue.after, own or 0.0)
    # A queue that sets ``only`` without a fallback allows none.
    return None if rule.use is SpotUse.ONLY else own


def _gpus(members: Iterable[Member]) -> float:
    return sum(member.charged_gpus for member in members)
