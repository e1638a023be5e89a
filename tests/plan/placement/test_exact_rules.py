"""Gangs with rules between their pods, against an exact search over all orders and placements.

The oracle knows nothing of the code that it judges: it places pod after pod as kube-scheduler
would, in every order on every node, and so finds out whether any placement exists. It also judges
the placements of the plan: some order must lead to them.
"""

import random
from dataclasses import dataclass, field
from itertools import permutations
from unittest.mock import patch

import pytest

from kai_py.api.records.core import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kai_py.plan.placement.exact import MAX_SEARCH_STEPS, MAX_STEPS_PER_CYCLE, RuleSearch
from tests.support.scenario import cluster, job, node, placed, pod, queue

HOST, RACK, ZONE = "kubernetes.io/hostname", "rack", "zone"
REQUIRED_TOPOLOGY = "kai.scheduler/topology-required-placement"


@dataclass(frozen=True)
class Kind:
    """Equal pods: what they request, and (label value, topology key) of what they ask of others."""

    app: str
    gpus: int
    cpu: int
    selector: str = ""
    near: tuple[tuple[str, str], ...] = ()
    apart: tuple[tuple[str, str], ...] = ()
    prefers: tuple[tuple[str, str], ...] = ()
    spread: tuple[tuple[str, str, int], ...] = ()


@dataclass
class Case:
    nodes: dict[str, dict]
    standing: list[tuple[Kind, str]]
    gang: list[Kind]
    topology: str = ""
    seen: set = field(default_factory=set)

    def feasible(self) -> bool:
        """Whether any order of the pods leads to a placement of all."""
        domains = {labels[self.topology] for labels in self.nodes.values()} if self.topology else ()
        return any(self._search((), d) for d in domains) if domains else self._search((), "")

    def valid(self, where: dict[int, str]) -> bool:
        """Whether the pods of the gang can come to be where they are, in some order."""
        if self.topology and len({self.nodes[n][self.topology] for n in where.values()}) > 1:
            return False

        def reachable(order) -> bool:
            done: list[tuple[Kind, str]] = []
            for at in order:
                if not self._fits(self.gang[at], where[at], [*self.standing, *done]):
                    return False
                done.append((self.gang[at], where[at]))
            return True

        return any(map(reachable, permutations(where)))

    def _search(self, done: tuple[tuple[int, str], ...], domain: str) -> bool:
        if len(done) == len(self.gang):
            return True
        kinds = sorted(((self.gang.index(self.gang[at]), name) for at, name in done))
        state = domain, *kinds
        if state in self.seen:
            return False
        self.seen.add(state)
        pods = [*self.standing, *((self.gang[at], name) for at, name in done)]
        left = [at for at in range(len(self.gang)) if at not in dict(done)]
        tried: set[Kind] = set()
        for at in left:
            if self.gang[at] in tried:
                continue
            tried.add(self.gang[at])
            for name, labels in self.nodes.items():
                if domain and labels[self.topology] != domain:
                    continue
                if self._fits(self.gang[at], name, pods) and self._search(
                    (*done, (at, name)), domain
                ):
                    return True
        return False

    def _fits(self, kind: Kind, name: str, pods: list[tuple[Kind, str]]) -> bool:
        labels = self.nodes[name]
        here = [other for other, at in pods if at == name]
        if sum(o.gpus for o in here) + kind.gpus > labels["gpus"]:
            return False
        if sum(o.cpu for o in here) + kind.cpu > labels["cpu"]:
            return False
        if kind.selector and labels["disk"] != kind.selector:
            return False
        for app, key in kind.apart:
            if any(o.app == app and self.nodes[at][key] == labels[key] for o, at in pods):
                return False
        for other, at in pods:
            if any(a == kind.app and self.nodes[at][k] == labels[k] for a, k in other.apart):
                return False
        return self._near(kind, labels, pods) and self._even(kind, labels, pods)

    def _near(self, kind: Kind, labels: dict, pods: list[tuple[Kind, str]]) -> bool:
        if not kind.near:
            return True
        matching = [at for o, at in pods if all(o.app == app for app, _ in kind.near)]
        if not matching:
            return all(app == kind.app for app, _ in kind.near)
        return all(any(self.nodes[at][k] == labels[k] for at in matching) for _, k in kind.near)

    def _even(self, kind: Kind, labels: dict, pods: list[tuple[Kind, str]]) -> bool:
        open_nodes = [
            e for e in self.nodes.values() if not kind.selector or e["disk"] == kind.selector
        ]
        names = [n for n, e in self.nodes.items() if e in open_nodes]
        for app, key, skew in kind.spread:
            counts = {each[key]: 0 for each in open_nodes}
            for other, at in pods:
                if other.app == app and at in names:
                    counts[self.nodes[at][key]] += 1
            after = counts.get(labels[key], 0) + (app == kind.app)
            if after - min(counts.values()) > skew:
                return False
        return True


def term(app: str, key: str) -> PodAffinityTerm:
    return PodAffinityTerm(
        label_selector=LabelSelector(match_labels={"app": app}), topology_key=key
    )


def as_pod(kind: Kind, name: str, **more):
    preferred = tuple(
        WeightedPodAffinityTerm(weight=10, pod_affinity_term=term(*each)) for each in kind.prefers
    )
    affinity = Affinity(
        pod_affinity=PodAffinity(required=tuple(term(*each) for each in kind.near)),
        pod_anti_affinity=PodAffinity(
            required=tuple(term(*each) for each in kind.apart), preferred=preferred
        ),
    )
    spread = tuple(
        TopologySpreadConstraint(
            max_skew=skew,
            topology_key=key,
            label_selector=LabelSelector(match_labels={"app": app}),
        )
        for app, key, skew in kind.spread
    )
    return pod(
        name,
        kind.gpus,
        requests={"cpu": str(kind.cpu)},
        labels={"app": kind.app},
        affinity=affinity if kind.near or kind.apart or kind.prefers else None,
        topology_spread_constraints=spread,
        node_selector={"disk": kind.selector} if kind.selector else {},
        **more,
    )


def plan_of(case: Case) -> dict[int, str]:
    """Where each pod of the gang is bound."""
    nodes = [
        node(
            name,
            each["gpus"],
            str(each["cpu"]),
            {key: each[key] for key in (RACK, ZONE, "disk")},
        )
        for name, each in case.nodes.items()
    ]
    standing = [
        as_pod(kind, f"standing-{i}", node=at, scheduler_name="default-scheduler")
        for i, (kind, at) in enumerate(case.standing)
    ]
    owner = job("gang", len(case.gang), "q", **topology_of(case))
    pods = [as_pod(kind, f"gang-{i}", owner=owner) for i, kind in enumerate(case.gang)]
    world = cluster(nodes, standing, queue("q", 100), owner, pods)
    found = placed(world.plan())
    return {int(name.split("-")[1]): at for name, at in found.items()}


def topology_of(case: Case) -> dict[str, str]:
    return {REQUIRED_TOPOLOGY: case.topology} if case.topology else {}


def random_case(chance: random.Random, rules: str) -> Case:
    """``rules``: plain, selectors, apart, near, spread or mixed."""
    count = chance.randint(2, 6)
    nodes = {
        f"n{i}": {
            "gpus": chance.choice((2, 4, 8)),
            "cpu": chance.choice((4, 8, 16)),
            RACK: f"r{i % chance.choice((2, 3))}",
            ZONE: f"z{i * 2 // count}",
            HOST: f"n{i}",
            "disk": chance.choice(("ssd", "hdd")),
        }
        for i in range(count)
    }
    apps = chance.sample("abc", chance.choice((1, 1, 2, 2, 3)))
    kinds = [random_kind(chance, app, apps, rules) for app in apps]
    gang = [chance.choice(kinds) for _ in range(chance.randint(1, 5))]
    standing = []
    if chance.random() < 0.3:
        standing.append((Kind("dns", 0, 1, prefers=(("dns", HOST),)), chance.choice(list(nodes))))
    if rules == "mixed":
        for _ in range(chance.choice((0, 0, 1, 2))):
            kind = random_kind(chance, chance.choice("abc"), "abc", "apart")
            standing.append((Kind(kind.app, 0, 1, apart=kind.apart), chance.choice(list(nodes))))
    return Case(nodes, standing, gang, chance.choice(("", "", "", RACK)))


def random_kind(chance: random.Random, app: str, apps, rules: str) -> Kind:
    def some(likely: float):
        if chance.random() > likely:
            return ()
        keys = chance.sample((RACK, HOST, ZONE), chance.choice((1, 1, 1, 2)))
        return tuple((chance.choice(apps), key) for key in keys)

    def wants(kind: str) -> bool:
        return rules == kind or (rules == "mixed" and chance.random() < 0.4)

    near = some(0.8) if wants("near") else ()
    if rules == "near":
        near = tuple((app, key) for _, key in near)
    apart = some(0.8) if wants("apart") else ()
    spread = ()
    if wants("spread"):
        spread = ((chance.choice(apps), chance.choice((RACK, HOST, ZONE)), chance.choice((1, 2))),)
    return Kind(
        app,
        chance.choice((0, 1, 2, 4)),
        chance.choice((1, 2, 4, 8)),
        chance.choice(("", "ssd", "hdd")) if wants("selectors") else "",
        near,
        apart,
        (("dns", HOST),) if chance.random() < 0.1 else (),
        spread,
    )


KINDS = ("plain", "selectors", "apart", "near", "spread", "mixed")


def judge(seed: int, rules: str) -> str:
    """feasible, infeasible, missed or invalid."""
    case = random_case(random.Random(f"{rules}-{seed}"), rules)
    found, exists = plan_of(case), case.feasible()
    if found and (len(found) < len(case.gang) or not case.valid(found)):
        return "invalid"
    if exists and not found:
        return "missed"
    return "feasible" if exists else "infeasible"


@pytest.mark.slow
@pytest.mark.parametrize("rules", KINDS)
def test_every_gang_that_can_be_placed_is_placed(rules: str):
    verdicts = [judge(seed, rules) for seed in range(50)]
    assert verdicts.count("feasible") > 5, "the cases say nothing"
    wrong = [(seed, each) for seed, each in enumerate(verdicts) if each in ("missed", "invalid")]
    assert not wrong


@pytest.mark.parametrize(
    ("first", "end"),
    [
        pytest.param(50, 300, marks=pytest.mark.slow),
        pytest.param(300, 884, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("rules", KINDS)
def test_every_gang_that_can_be_placed_is_placed_at_length(rules: str, first: int, end: int):
    wrong = [s for s in range(first, end) if judge(s, rules) in ("missed", "invalid")]
    assert not wrong


def racks(count: int, per_rack: int, gpus: int = 8, cpu: int = 64) -> list:
    return [
        node(f"r{r}n{i}", gpus, str(cpu), {RACK: f"r{r}", "disk": "ssd"})
        for r in range(count)
        for i in range(per_rack)
    ]


def gang_of(*kinds: Kind) -> list:
    owner = job("gang", len(kinds), "q")
    return [owner, *(as_pod(kind, f"gang-{i}", owner=owner) for i, kind in enumerate(kinds))]


def test_a_gang_with_affinity_to_itself_goes_to_the_rack_that_holds_it():
    """Rack r0 is tighter for one pod, and too small for the gang."""
    kind = Kind("a", 1, 1, near=(("a", RACK),))
    small = [node("r0n0", 8, "4", {RACK: "r0"}), node("r1n0", 8, "16", {RACK: "r1"})]
    plan = cluster(small, queue("q", 100), gang_of(*[kind] * 5)).plan()
    assert set(placed(plan).values()) == {"r1n0"}
    large = [*racks(2, 7), *racks(3, 10)[20:]]
    plan = cluster(large, queue("q", 100), gang_of(*[kind] * 80)).plan()
    assert {name[:2] for name in placed(plan).values()} == {"r2"}


def test_a_large_gang_that_follows_its_leader_shares_a_rack_with_it():
    leader = Kind("leader", 0, 1)
    worker = Kind("worker", 4, 1, near=(("leader", RACK),))
    world = cluster(
        racks(1, 3), racks(2, 60)[60:], queue("q", 500), gang_of(leader, *[worker] * 99)
    )
    assert {name[:2] for name in placed(world.plan()).values()} == {"r1"}


def test_a_gang_that_runs_in_part_is_joined_by_the_rest_where_it_runs():
    kind = Kind("a", 1, 1, near=(("a", RACK),))
    runs = as_pod(kind, "runs", node="r1n0", scheduler_name="default-scheduler")
    plan = cluster(racks(2, 2), queue("q", 100), runs, gang_of(*[kind] * 4)).plan()
    assert {name[:2] for name in placed(plan).values()} == {"r1"}


@pytest.mark.slow
def test_searches_with_rules_are_bounded_by_gang_and_by_cycle():
    """Four pods that refuse each other per zone, and three zones: counting sees no limit."""
    kinds = [Kind(app, 1, 1, apart=tuple((each, ZONE) for each in "abcd")) for app in "abcd"]
    nodes = [node(f"n{i}", 2 + i % 7, str(9 + i), {ZONE: f"z{i % 3}"}) for i in range(24)]
    gangs = []
    for number in range(40):
        owner = job(f"gang-{number}", 4, "q")
        pods = [as_pod(k, f"{number}-{i}", owner=owner) for i, k in enumerate(kinds)]
        gangs.append([owner, *pods])
    spent = []
    with patch.object(RuleSearch, "place", counting(RuleSearch.place, spent)):
        plan = cluster(nodes, queue("q", 100), *gangs[:1]).plan()
        one = len(spent)
        plan = cluster(nodes, queue("q", 100), *gangs).plan()
    assert placed(plan) == {}
    assert 10 < one <= MAX_SEARCH_STEPS + 1
    assert len(spent) - one <= MAX_STEPS_PER_CYCLE + len(gangs)


def counting(place, calls: list):
    def counted(self):
        calls.append(self)
        return place(self)

    return counted


@pytest.mark.slow
def test_plans_are_the_same_whether_failed_searches_are_remembered():
    kinds = [Kind(app, 1, 1, apart=tuple((each, ZONE) for each in "abcd")) for app in "abcd"]
    nodes = [node(f"n{i}", 2 + i % 7, str(9 + i), {ZONE: f"z{i % 3}"}) for i in range(12)]
    objects = [nodes, queue("q", 100)]
    for number in range(6):
        owner = job(f"gang-{number}", 4, "q")
        objects.append([owner, *(as_pod(k, f"{number}-{k.app}", owner=owner) for k in kinds)])
    world, spent = cluster(*objects), []
    first = world.plan()
    with patch.object(RuleSearch, "place", counting(RuleSearch.place, spent)):
        again = world.plan(now=1001.0)
    assert first.unplaced == again.unplaced
    assert not spent, "nothing changed"
