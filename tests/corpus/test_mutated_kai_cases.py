"""Recorded clusters, changed by chance: no plan breaks a rule, whatever is in it.

What KAI would do with them is not known. What no plan may do is.
"""

import random
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from kai_py.api.gpu_share import GPU_RESOURCE
from kai_py.dra.cluster_devices import ClusterDevices
from kai_py.grouping.gang import is_satisfied
from kai_py.plan.cycle.memory import CycleMemory
from kai_py.plan.cycle.run import run_cycle
from kai_py.plan.plan import Action
from kai_py.plan.session.settings import CycleSettings
from kai_py.policy.fairness_rules import KAI, NATIVE
from tests.corpus.kai_objects import gpu_rules, snapshot_of_objects
from tests.corpus.kai_session import strategies
from tests.corpus.mutations import mutated, shuffled
from tests.corpus.test_kai_cases import read_cases as recorded_cases
from tests.corpus.test_kai_cases import reader_of

TABLE = "mutated-kai-cases"
SEEDS = 100
SLACK = 1e-6


class Mutant(NamedTuple):
    """``recorded``: the case that ``cluster`` came from; how it is read and by which rules."""

    recorded: dict
    cluster: dict
    see: object
    rules: object


def read_cases(data):
    recorded = recorded_cases(data)
    names = sorted(name for name, case in recorded.items() if case["cluster"]["jobs"])
    mutants = {}
    for seed in range(SEEDS):
        chance = random.Random(seed)
        name = chance.choice(names)
        case = recorded[name]
        as_objects = chance.random() < 0.5
        mutants[f"{seed} {name}"] = Mutant(
            case,
            mutated(case["cluster"], seed),
            snapshot_of_objects if as_objects else reader_of(case),
            chance.choice((KAI, NATIVE)),
        )
    return mutants


def test_case(case):
    snapshot, plan = planned(case, case.cluster)
    came, went, stay = movements(snapshot, plan)
    check_nodes(snapshot, plan, came, went)
    check_floors(snapshot, came, went, stay)
    check_victims(snapshot, plan)
    check_queues(snapshot, came, stay)
    again = planned(case, shuffled(case.cluster, 1))[1]
    assert decisions(again) == decisions(plan), "the order of listing decides"


def planned(case, cluster):
    devices = ClusterDevices(gpu_rules(cluster))
    chosen = strategies(case.recorded["config"]["plugins"])
    snapshot = case.see(cluster, devices.accounting)
    return snapshot, run_cycle(
        snapshot, CycleSettings(rules=case.rules, **chosen), CycleMemory(devices)
    )


def decisions(plan):
    return (
        sorted((p.pod.name, p.node) for each in plan.placements for p in each.pods),
        sorted((n.pod.name, n.node) for n in plan.nominations),
        sorted((e.pod.name, e.action, e.relocated_to) for e in plan.evictions),
    )


def movements(snapshot, plan):
    """By gang: pods that got a node (with it), pods that are lost, pods that stay or move."""
    nodes = {p.pod.uid: p.node for each in plan.placements for p in each.pods}
    nodes |= {n.pod.uid: n.node for n in plan.nominations}
    lost = {e.pod.uid for e in plan.evictions if not e.relocated_to}
    came, went, stay = {}, {}, {}
    for key, gang in snapshot.gangs.items():
        came[key] = [(m, nodes[m.pod.uid]) for m in gang.members if m.pod.uid in nodes]
        went[key] = [m for m in gang.bound if m.pod.uid in lost]
        stay[key] = [m for m in gang.bound if m.pod.uid not in lost]
    return came, went, stay


def check_nodes(snapshot, plan, came, went):
    """No node holds more than it has once all pods have come and left."""
    position, resources = snapshot.nodes.positions, snapshot.resources.positions
    held = snapshot.used - snapshot.releasing
    before = held.copy()

    def post(member, node, sign):
        for name, amount in member.shape.requests.items():
            if name in resources:
                held[resources[name], position[node]] += sign * amount

    for gang in snapshot.gangs:
        for member, node in came[gang]:
            post(member, node, 1)
        for member in went[gang]:
            post(member, member.node, -1)
    moved = {e.pod.uid: e.relocated_to for e in plan.evictions if e.relocated_to}
    for member in (m for gang in snapshot.gangs.values() for m in gang.bound):
        if member.pod.uid in moved:
            post(member, member.node, -1)
            post(member, moved[member.pod.uid], 1)
    over = (held > snapshot.nodes.allocatable + SLACK) & (held > before + SLACK)
    if any(m.shape.gpu_share for gang in snapshot.gangs.values() for m in gang.members):
        over[resources.get(GPU_RESOURCE, slice(0, 0))] = False  # parts of GPUs are no whole ones
    assert not over.any(), np.argwhere(over)


def check_floors(snapshot, came, went, stay):
    for key, gang in snapshot.gangs.items():
        if came[key]:
            leaves = Counter(m.subgroup for m in (*stay[key], *(m for m, _ in came[key])))
            assert is_satisfied(gang.tree, leaves), f"{key} starts below its floor"
        if went[key] and stay[key] and gang.is_satisfied:
            leaves = Counter(m.subgroup for m in stay[key])
            assert is_satisfied(gang.tree, leaves), f"{key} is left below its floor"


def check_victims(snapshot, plan):
    owners = {m.pod.uid: (g, m) for g in snapshot.gangs.values() for m in g.members}
    winners = {n.gang for n in plan.nominations} | {each.gang for each in plan.placements}
    for eviction in plan.evictions:
        (victim, member), winner = owners[eviction.pod.uid], eviction.preemptor
        if eviction.action is Action.STALE:
            continue
        assert victim.is_preemptible([member])
        assert winner in winners, f"{eviction.pod.name} is evicted without a gang that starts"
        if eviction.action is Action.PREEMPT and not eviction.relocated_to:
            assert snapshot.gangs[winner].queue == victim.queue
            assert snapshot.gangs[winner].priority > victim.priority
        if eviction.action is Action.RECLAIM and not eviction.relocated_to:
            assert snapshot.gangs[winner].queue != victim.queue


def check_queues(snapshot, came, stay):
    """What a queue was given is within its max, and what can't be taken back within deserved."""
    specs = {spec.name: spec for spec in snapshot.queues}
    held, fixed, given, bound = (defaultdict(Counter) for _ in range(4))
    for key, gang in snapshot.gangs.items():
        new = [m for m, _ in came[key]]
        for queue in line(specs, gang.queue):
            for member in (*stay[key], *new):
                held[queue].update(member.charge)
                fixed[queue].update(member.charge if gang.is_non_preemptible(member) else {})
            for member in new:
                given[queue].update(member.charge)
                bound[queue].update(member.charge if gang.is_non_preemptible(member) else {})
    for name, spec in specs.items():
        for resource in (r for r, amount in given[name].items() if amount):
            assert held[name][resource] <= spec.max.get(resource, np.inf) + SLACK, name
        if bound[name]["gpu"]:
            assert fixed[name]["gpu"] <= spec.deserved.get("gpu", 0.0) + SLACK, name


def line(specs, queue):
    while queue in specs:
        yield queue
        queue = specs[queue].parent
