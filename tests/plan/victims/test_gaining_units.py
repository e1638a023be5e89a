"""Trials with only the units that gain replicas find victims for the same gangs."""

import random
from collections.abc import Sequence

import pytest

from kai_py.plan.victims.reduction import VictimReduction
from kai_py.plan.victims.selection import VictimSelection
from kai_py.plan.victims.trials import TrialPlacements
from kai_py.plan.victims.units import VictimUnit
from tests.plan.placement.test_exact_rules import HOST, RACK, Kind, as_pod
from tests.support.examples import examples
from tests.support.scenario import Cluster, cluster, evicted, job, node, nominated, pod, queue


def all_selected(self: VictimReduction, selection: VictimSelection) -> bool:
    """Try with all selected units, and with twice as many the next time."""
    if self._trials.is_exact or self._trials.fits(selection.units):
        return True
    selection.double(in_replicas=False)
    return False


def drawn(seed: int) -> Cluster:
    """Nodes full of single pods and of pods with rules, and a gang with rules that reclaims."""
    chance = random.Random(seed)
    objects = [queue("owner", 40), queue("guest", 0)]
    created = 0.0
    for i in range(chance.randint(4, 12)):
        objects.append(node(f"n{i}", 4, labels={RACK: f"r{i // 3}", "disk": chance.choice("xy")}))
        free = 4
        while free > 0:
            gpus = chance.randint(1, free)
            free -= gpus
            created += 1
            apart = (("new", chance.choice([HOST, RACK])),) if chance.random() < 0.1 else ()
            kind = Kind(chance.choice(["old", "other", "near"]), gpus, 1, apart=apart)
            objects.append(
                as_pod(kind, f"run-{int(created)}", queue="guest", node=f"n{i}", created=created)
            )
    level = chance.choice([HOST, RACK])
    rules = [
        {"apart": (("new", level),)},
        {"near": (("new", level),)},
        {"spread": (("new", level, 1),)},
        {"near": (("near", level),)},
        {"apart": (("old", level),)},
        {},
    ]
    selector = chance.choice(["", "", "x"])
    kind = Kind("new", chance.randint(1, 4), 1, selector=selector, **chance.choice(rules))
    count = chance.randint(1, 4)
    owner = job("new", count, "owner")
    objects += [owner, *(as_pod(kind, f"new-{i}", owner=owner) for i in range(count))]
    return cluster(objects)


@pytest.mark.slow
def test_the_same_gangs_reclaim_at_no_higher_cost(monkeypatch: pytest.MonkeyPatch):
    """More gangs may: a set with pods that the gang must be near fails where a smaller one fits."""
    seeds = range(examples(160))
    plans = [drawn(seed).plan() for seed in seeds]
    monkeypatch.setattr(VictimReduction, "fits_without", all_selected)
    pods = reference_pods = 0
    for seed, plan in zip(seeds, plans, strict=True):
        reference = drawn(seed).plan()
        assert nominated(plan).keys() >= nominated(reference).keys(), seed
        if nominated(reference):
            pods += len(evicted(plan))
            reference_pods += len(evicted(reference))
    assert pods <= 1.02 * reference_pods


def test_pods_on_nodes_that_fit_no_pod_are_not_tried(monkeypatch: pytest.MonkeyPatch):
    """One pod of three leaves each of many nodes before the first node is free."""
    tried: list[int] = []
    fits = TrialPlacements.fits

    def counted(self: TrialPlacements, units: Sequence[VictimUnit]) -> bool:
        tried.append(len(units))
        return fits(self, units)

    monkeypatch.setattr(TrialPlacements, "fits", counted)
    nodes = [node(f"n{i}", 3, labels={RACK: f"r{i}"}) for i in range(20)]
    running = [
        pod(f"run-{i}", 1, queue="guest", node=f"n{i % 20}", created=float(i)) for i in range(60)
    ]
    owner = job("new", 2, "owner")
    kind = Kind("new", 3, 1, apart=(("new", RACK),))
    waiting = [as_pod(kind, f"new-{i}", owner=owner) for i in range(2)]
    plan = cluster(nodes, running, queue("owner", 60), queue("guest", 0), owner, waiting).plan()
    assert len(evicted(plan)) == 6
    assert max(tried) <= 6
