"""Gangs of subgroups, each in one domain, against a search over all placements.

Pods have host ports, parts of GPUs, node selectors and anti-affinity as well. The oracle places
every pod on every node, and knows nothing of the code that it judges.
"""

import random
from dataclasses import dataclass

import pytest

from tests.dialects.feeding import Cluster, placed

HOST = "kubernetes.io/hostname"
LEVELS = ("zone", "rack", HOST)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SEEDS = 500


@dataclass(frozen=True)
class Kind:
    """Equal pods; ``fraction``: in tenths of a GPU; ``apart``: the level of which they share none.

    Pods of this kind have no domain of that level together with others of the kind.
    """

    name: str
    gpus: int
    fraction: int
    cpu: int
    port: int
    selector: str
    apart: str

    def pod(self, name: str, subgroup: str) -> dict:
        requests = {
            "cpu": str(self.cpu),
            **({"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}),
        }
        ports = [{"containerPort": self.port, "hostPort": self.port}] if self.port else []
        term = {"labelSelector": {"matchLabels": {"kind": self.name}}, "topologyKey": self.apart}
        rules = {"podAntiAffinity": {REQUIRED: [term]}}
        share = {"gpu-fraction": str(self.fraction / 10)} if self.fraction else {}
        return document(
            "v1",
            "Pod",
            name,
            {
                "labels": {"kai.scheduler/subgroup-name": subgroup, "kind": self.name},
                "annotations": {"pod-group-name": "gang", **share},
            },
            spec={
                "schedulerName": "kai-scheduler",
                "containers": [
                    {"name": "main", "resources": {"requests": requests}, "ports": ports}
                ],
                "nodeSelector": {"disk": self.selector} if self.selector else {},
                "affinity": rules if self.apart else {},
            },
        )


@dataclass
class Case:
    """``nodes``: labels, GPUs and processors; ``gang``: subgroup, parent and kinds of its pods."""

    nodes: dict[str, dict]
    gang: list[tuple[str, str, list[Kind]]]
    levels: dict[str, str]

    def pods(self) -> list[tuple[str, str, str, Kind]]:
        return [
            (f"{leaf}-{i}", leaf, parent, kind)
            for leaf, parent, kinds in self.gang
            for i, kind in enumerate(kinds)
        ]

    def is_feasible(self, done: tuple[str, ...] = ()) -> bool:
        """Whether the pods that are left find nodes, with the first ones on ``done``."""
        if len(done) == len(self.pods()):
            return True
        return any(
            self.is_valid((*done, name)) and self.is_feasible((*done, name)) for name in self.nodes
        )

    def is_valid(self, where: tuple[str, ...]) -> bool:
        pods = list(zip(self.pods(), where, strict=False))
        for name, has in self.nodes.items():
            here = [kind for (_, _, _, kind), at in pods if at == name]
            ports = [kind.port for kind in here if kind.port]
            if sum(kind.cpu for kind in here) > has["cpu"] or len(set(ports)) < len(ports):
                return False
            if any(kind.selector not in ("", has["disk"]) for kind in here):
                return False
            free = has["gpus"] - sum(kind.gpus for kind in here)
            if not fits_in_gpus(
                sorted(kind.fraction for kind in here if kind.fraction), [10] * free
            ):
                return False
            if free < 0:
                return False
        return all(
            self._may_be_together(one, other, at, beside)
            for i, (one, at) in enumerate(pods)
            for other, beside in pods[:i]
        )

    def _may_be_together(self, one, other, at: str, beside: str) -> bool:
        """Whether two pods may be on these nodes at the same time."""
        for group in {one[1], one[2]} & {other[1], other[2]} & self.levels.keys():
            if self._domain(at, self.levels[group]) != self._domain(beside, self.levels[group]):
                return False
        level = one[3].apart if one[3] == other[3] else ""
        return not level or self.nodes[at][level] != self.nodes[beside][level]

    def _domain(self, name: str, level: str) -> tuple[str, ...]:
        return tuple(self.nodes[name][each] for each in LEVELS[: LEVELS.index(level) + 1])


def fits_in_gpus(tenths: list[int], free: list[int]) -> bool:
    if not tenths:
        return True
    *others, largest = tenths
    return any(
        left >= largest and fits_in_gpus(others, [*free[:i], left - largest, *free[i + 1 :]])
        for i, left in enumerate(free)
        if left not in free[:i]
    )


def document(version: str, kind: str, name: str, metadata: dict | None = None, **fields) -> dict:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, **(metadata or {})},
        **fields,
    }


def drawn(chance: random.Random) -> Case:
    nodes = {
        f"n{i}": {
            "gpus": chance.randint(0, 4),
            "cpu": chance.choice((2, 4, 8)),
            "zone": f"z{i // 2}",
            "rack": f"r{i // 2}" if chance.random() < 0.7 else f"r{i}",
            HOST: f"n{i}",
            "disk": chance.choice(("ssd", "hdd")),
        }
        for i in range(chance.randint(2, 4))
    }
    kinds = [drawn_kind(chance, f"kind-{i}") for i in range(chance.randint(1, 3))]
    gang, levels = [], {}
    for i in range(chance.randint(2, 3)):
        parent = f"p{i % 2}" if chance.random() < 0.3 else ""
        gang.append((f"s{i}", parent, chance.choices(kinds, k=chance.randint(1, 2))))
        for group in (f"s{i}", parent):
            if group and chance.random() < 0.7:
                levels[group] = chance.choice(LEVELS)
    return Case(nodes, gang, levels)


def drawn_kind(chance: random.Random, name: str) -> Kind:
    fraction = chance.choice((0, 0, 3, 5, 7))
    return Kind(
        name,
        0 if fraction else chance.randint(0, 3),
        fraction,
        chance.randint(1, 3),
        chance.choice((0, 0, 80, 90)),
        chance.choice(("", "", "ssd")),
        chance.choice(("", "", "", HOST, "rack")),
    )


def plan_of(case: Case) -> dict[str, str]:
    """Pod name to node."""

    def entry(name: str, parent: str, **fields) -> dict:
        level = {"topology": "tree", "requiredTopologyLevel": case.levels.get(name)}
        constraint = {"topologyConstraint": level} if name in case.levels else {}
        return {"name": name, **constraint, **({"parent": parent} if parent else {}), **fields}

    amounts = {name: {"quota": -1, "limit": -1} for name in ("gpu", "cpu", "memory")}
    parents = sorted({parent for _, parent, _ in case.gang if parent})
    groups = [entry(name, "") for name in parents]
    groups += [entry(leaf, parent, minMember=len(kinds)) for leaf, parent, kinds in case.gang]
    levels = [{"nodeLabel": level} for level in LEVELS]
    objects = [
        document("scheduling.run.ai/v2", "Queue", "q", spec={"resources": amounts}),
        document("kai.scheduler/v1alpha1", "Topology", "tree", spec={"levels": levels}),
        document(
            "scheduling.run.ai/v2alpha2",
            "PodGroup",
            "gang",
            {"namespace": "default"},
            spec={"queue": "q", "subGroups": groups},
        ),
    ]
    for name, has in case.nodes.items():
        labels = {key: has[key] for key in (*LEVELS, "disk")}
        gpus = {"nvidia.com/gpu": str(has["gpus"])} if has["gpus"] else {}
        status = {
            "allocatable": {"cpu": str(has["cpu"]), "memory": "64Gi", "pods": "110", **gpus},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        objects.append(document("v1", "Node", name, {"labels": labels}, status=status))
    objects += [kind.pod(name, leaf) for name, leaf, _, kind in case.pods()]
    return placed(Cluster(objects).plan())


def judge(seed: int) -> str:
    """feasible, infeasible, missed or invalid."""
    case = drawn(random.Random(seed))
    found = plan_of(case)
    if not found:
        return "missed" if case.is_feasible() else "infeasible"
    names = [name for name, *_ in case.pods()]
    whole = found.keys() == set(names)
    return "feasible" if whole and case.is_valid(tuple(map(found.get, names))) else "invalid"


def wrong(seeds: range) -> list[tuple[int, str]]:
    judged = [(seed, judge(seed)) for seed in seeds]
    assert sum(verdict == "feasible" for _, verdict in judged) > len(seeds) / 10
    return [each for each in judged if each[1] in ("missed", "invalid")]


@pytest.mark.slow
def test_gangs_of_subgroups_that_can_be_placed_are_placed():
    assert not wrong(range(SEEDS))


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_gangs_of_subgroups_that_can_be_placed_are_placed_at_length():
    assert not wrong(range(SEEDS, 10 * SEEDS))
