"""Which gangs go to spot nodes: their workloads choose, within what their queues say.

A queue that says ``only`` or ``never``, or the nearest queue above it that says anything, decides;
a workload that contradicts it stays pending. Otherwise the workload chooses.

A gang that uses spot nodes only may use on-demand nodes, too, after it has waited for the time of
its fallback, in the order of waiting, as long as the on-demand GPUs of such gangs stay within the
``maxGPUs`` of the queue that sets the fallback. A workload may wait longer than its queue says, not
shorter. What fell back may go on to use on-demand nodes while any of its pods is on one.

The choice becomes part of the shapes of the pods, so that all that is computed once per shape is
computed once per choice. Gangs and shapes are the same objects from cycle to cycle while nothing
changes. O(gangs) where any queue chooses, O(gangs whose workloads choose) otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from msgspec import structs

from kai_py.api.spot import DEFAULT_SPOT_LABELS, SpotFallback, SpotUse
from kai_py.snapshot.accounting import GPU
from kai_py.snapshot.gangs import Gang, Member
from kai_py.snapshot.shape import Shape
from kai_py.snapshot.snapshot import Snapshot
from kai_py.snapshot.spot import SpotChoice, SpotLabelValues, spot_nodes
from kai_py.snapshot.tables.queue_checks import MAX_DEPTH
from kai_py.snapshot.tables.queues import QueueInfo

NUMBERS_PER_CHOICE = 2**40
"""Numbers of shapes that chose differ from all others by a multiple of it."""


@dataclass(frozen=True, slots=True)
class SpotRules:
    """``labels`` of spot nodes; ``price_ratio``: their price as a part of that of others."""

    labels: SpotLabelValues = tuple(sorted(DEFAULT_SPOT_LABELS.items()))
    price_ratio: float = 0.4


DEFAULT_SPOT_RULES = SpotRules()


@dataclass(frozen=True, slots=True)
class CycleSpot:
    """Who uses spot nodes in a cycle.

    ``uses``: by gang what it chose; ``fallback_at``: by gang that uses spot nodes only, when it may
    use others; ``over_budget``: those for which the queue, named, has no budget left.
    """

    rules: SpotRules = DEFAULT_SPOT_RULES
    uses: Mapping[str, SpotUse] = field(default_factory=lambda: MappingProxyType({}))
    fallback_at: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    over_budget: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


NO_SPOT = CycleSpot()


@dataclass(frozen=True, slots=True)
class _QueueSpot:
    """What holds in a queue; ``budget``: the queue that sets the fallback."""

    use: SpotUse | None = None
    fallback: SpotFallback | None = None
    budget: str = ""


@dataclass
class SpotChoices:
    """The gangs and shapes of the last cycle, as they chose."""

    _gangs: dict[str, tuple[Gang, SpotUse, str, Gang]] = field(default_factory=dict)
    _shapes: dict[tuple[int, SpotUse], Shape] = field(default_factory=dict)
    _last: tuple[Snapshot, Snapshot] | None = None

    def applied(self, snapshot: Snapshot, rules: SpotRules) -> tuple[Snapshot, CycleSpot]:
        """``snapshot`` with the choices in its shapes, and the choices."""
        queues = _queue_spots(snapshot.queues)
        by_queue = any(each.use is not None for each in queues.values())
        keys: Iterable[str] = snapshot.gangs if by_queue else snapshot.choosing_spot
        uses, problems = _uses(snapshot, keys, queues)
        if not uses:
            self._gangs, self._shapes, self._last = {}, {}, None
            return snapshot, CycleSpot(rules)
        fell_back, waiting, over = _fallbacks(snapshot, rules, uses, queues)
        known, self._gangs = self._gangs, {}
        shapes, self._shapes = self._shapes, {}
        gangs, unchanged = dict(snapshot.gangs), True
        for key, use in uses.items():
            effective = SpotUse.PREFER if key in fell_back else use
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
            self._last = snapshot, replace(snapshot, gangs=gangs)
        return self._last[1], CycleSpot(rules, uses, waiting, over)

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
                shape = replace(member.shape, number=member.shape.number + offset, spot=choice)
            self._shapes[key] = shape
            return structs.replace(member, shape=shape)

        return structs.replace(
            gang,
            members=tuple(map(chosen, gang.members)),
            placeholders=tuple(map(chosen, gang.placeholders)),
            problem=gang.problem or problem,
        )


def _queue_spots(queues: Iterable[QueueInfo]) -> dict[str, _QueueSpot]:
    """What holds in each queue: what it says, or the nearest above it that says anything."""
    specs = {spec.name: spec for spec in queues}
    if all(spec.spot is None and spec.spot_fallback is None for spec in specs.values()):
        return {}
    found: dict[str, _QueueSpot] = {}
    for name in specs:
        chosen, at = _QueueSpot(), name
        for _ in range(MAX_DEPTH + 1):
            spec = specs.get(at)
            if spec is None:
                break
            if chosen.use is None:
                chosen = replace(chosen, use=spec.spot)
            if chosen.fallback is None and spec.spot_fallback is not None:
                chosen = replace(chosen, fallback=spec.spot_fallback, budget=at)
            at = spec.parent
        found[name] = chosen
    return found


def _uses(
    snapshot: Snapshot, keys: Iterable[str], queues: Mapping[str, _QueueSpot]
) -> tuple[dict[str, SpotUse], dict[str, str]]:
    """By gang its choice, and what is wrong with it."""
    uses: dict[str, SpotUse] = {}
    problems: dict[str, str] = {}
    for key in keys:
        gang = snapshot.gangs[key]
        by_queue = queues.get(gang.queue, _QueueSpot()).use
        if by_queue is None or (by_queue is SpotUse.PREFER and gang.spot is not None):
            if gang.spot is not None:
                uses[key] = gang.spot
            continue
        uses[key] = by_queue
        if gang.spot not in (None, by_queue, SpotUse.PREFER):
            problems[key] = (
                f"{gang.owner.kind} {gang.owner.namespace}/{gang.owner.name}: "
                f"scheduling.kai.io/spot is {gang.spot}, but spec.spot of queue "
                f'"{gang.queue}" or of one above it is {by_queue}; use another queue, or remove '
                "the annotation"
            )
    return uses, problems


def _fallbacks(
    snapshot: Snapshot,
    rules: SpotRules,
    uses: Mapping[str, SpotUse],
    queues: Mapping[str, _QueueSpot],
) -> tuple[frozenset[str], dict[str, float], dict[str, str]]:
    """Gangs that may use on-demand nodes; others: from when on, or whose budget is spent."""
    only = [snapshot.gangs[key] for key, use in uses.items() if use is SpotUse.ONLY]
    nodes = snapshot.nodes
    on_spot = spot_nodes(rules.labels, nodes)
    spot = {name for name, row in nodes.positions.items() if on_spot[row]}
    fell_back: set[str] = set()
    used: dict[str, float] = {}
    for gang in only:
        outside = [m for m in gang.bound if m.node and m.node not in spot]
        if outside:
            fell_back.add(gang.key)
            budget = queues.get(gang.queue, _QueueSpot()).budget
            used[budget] = used.get(budget, 0.0) + _gpus(outside)
    at: dict[str, float] = {}
    over: dict[str, str] = {}
    for gang in sorted(only, key=lambda each: (each.waiting_since, each.key)):
        if not gang.pending:
            continue
        rule = queues.get(gang.queue, _QueueSpot())
        after = _fallback_after(gang, rule)
        if after is None:
            continue
        if snapshot.now < gang.waiting_since + after:
            if gang.key not in fell_back:
                at[gang.key] = gang.waiting_since + after
            continue
        needed = used.get(rule.budget, 0.0) + _gpus(gang.pending)
        most = rule.fallback.max_gpus if rule.fallback is not None else None
        if most is not None and needed > most:
            over[gang.key] = rule.budget
            fell_back.discard(gang.key)
            continue
        used[rule.budget] = needed
        fell_back.add(gang.key)
    return frozenset(fell_back), at, over


def _fallback_after(gang: Gang, rule: _QueueSpot) -> float | None:
    """How long a gang waits for spot nodes; None: for ever."""
    own, queue = gang.spot_fallback_after, rule.fallback
    if queue is not None:
        return max(queue.after, own or 0.0)
    # A queue that says only, and no fallback, allows none.
    return None if rule.use is SpotUse.ONLY else own


def _gpus(members: Iterable[Member]) -> float:
    return sum(member.charge.get(GPU, 0.0) for member in members)
