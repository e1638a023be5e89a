"""Random clusters in which everything occurs together, each from one seed.

Gangs of several shapes, elastic or not, running, waiting or in between; rules between pods, node
selectors, topology, claims for devices and shares of them, queues with limits and min runtimes.
"""

import random

from kai_py.api.records.core import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from tests.support.scenario import (
    Cluster,
    claim,
    claim_of,
    claiming,
    device_class,
    device_slice,
    gpu_slice,
    job,
    node,
    pod,
    queue,
)

RACK, ZONE, HOST = "example.com/rack", "topology.kubernetes.io/zone", "kubernetes.io/hostname"
LEVELS = (RACK, ZONE, HOST)
APPS = ("red", "green", "blue")
SHAPES = ((0, 1), (1, 1), (1, 3), (2, 1), (3, 20), (8, 8))
"""GPUs and processors of a pod."""
EXPRESSIONS = (
    "",
    'device.attributes["gpu.nvidia.com"].productName == "T4"',
    '"nothing" in device.attributes["gpu.nvidia.com"]',
)


def mixed_world(seed: int, **settings) -> Cluster:
    """The world of a seed, ready to be planned."""
    chance = random.Random(seed)
    made = [device_class(), *_queues(chance)]
    nodes = _nodes(chance)
    made += [each for listed in nodes.values() for each in listed]
    for i in range(chance.randint(2, 9)):
        made += _gang(chance, f"g{i}", list(nodes))
    return Cluster(settings).add(*made)


def backlogged_world(seed: int, **settings) -> Cluster:
    """The world of a seed, and many pending Jobs of few kinds, in turns."""
    chance = random.Random(seed)
    world = mixed_world(seed, **settings)
    kinds = [
        {
            "size": chance.choice((1, 1, 2, 3)),
            "team": chance.choice(APPS),
            "priority": chance.randint(0, 3),
            "preemptibility": chance.choice(("preemptible", "non-preemptible")),
            "pod": {**_kind(chance), "claimed": ""},
        }
        for _ in range(chance.randint(1, 4))
    ]
    for i in range(chance.randint(4, 16)):
        world.add(*_equal_job(f"equal-{i}", float(i), **chance.choice(kinds)))
    return world


def _equal_job(name, created, *, size, team, priority, preemptibility, pod):
    owner = job(name, size, team, **{"scheduling.kai.io/preemptibility": preemptibility})
    options = {"queue": team, "priority": priority, "owner": owner}
    yield owner
    for i in range(size):
        constant = random.Random(created)
        yield from _pod(constant, f"{name}-{i}", "", pod, {}, options)


def _queues(chance):
    for name in APPS:
        spec = {}
        if chance.random() < 0.3:
            spec["preemptMinRuntime"] = "5m"
        if chance.random() < 0.2:
            spec["reserveAfter"] = "1m"
        maximum = chance.choice((None, None, chance.randint(4, 16)))
        yield queue(name, min(chance.randint(0, 8), maximum or 8), maximum, **spec)


def _nodes(chance):
    made = {}
    for i in range(chance.randint(1, 7)):
        name, kind = f"n{i}", chance.choice(("plugin", "plugin", "slices", "shared", "none"))
        labels = {RACK: f"r{i // 2}", ZONE: f"z{i // 4}", "disk": chance.choice(("ssd", "hdd"))}
        gpus = chance.choice((1, 4, 8)) if kind == "plugin" else 0
        made[name] = [node(name, gpus, str(chance.choice((4, 16, 64))), labels)]
        if kind == "slices":
            made[name].append(gpu_slice(name, chance.randint(1, 8), chance.choice(("T4", "H100"))))
        elif kind == "shared":
            made[name].append(_shared_slice(name, chance.randint(1, 4)))
    return made


def _shared_slice(name, gpus):
    devices = [
        {
            "name": f"gpu-{i}",
            "allowMultipleAllocations": True,
            "attributes": {"productName": {"string": "shared"}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for i in range(gpus)
    ]
    return device_slice(name, devices, part="shared")


def _gang(chance, name, nodes):
    """A Job, whose pods start together, or a group with a minMember of its own."""
    size = chance.choice((1, 1, 2, 3, 5, 12))
    kinds = [_kind(chance) for _ in range(chance.randint(1, 3))]
    owner, annotations = None, {}
    topology = {"kai.scheduler/topology-required-placement": chance.choice(LEVELS)}
    topology = topology if chance.random() < 0.3 else {}
    team = chance.choice(APPS)
    if chance.random() < 0.5:
        owner = job(name, size, team, **topology)
        yield owner
    else:
        annotations = {
            "scheduling.kai.io/pod-group": name,
            "scheduling.kai.io/min-available": str(chance.randint(1, size)),
        }
    if chance.random() < 0.2:
        annotations["scheduling.kai.io/preemptibility"] = "non-preemptible"
    runs = chance.choice((0.0, 0.0, 1.0, 1.0, 0.7))
    options = {"queue": team, "priority": chance.randint(0, 3), "owner": owner}
    for i in range(size):
        at = chance.choice(nodes) if chance.random() < runs else ""
        yield from _pod(chance, f"{name}-{i}", at, chance.choice(kinds), annotations, options)


def _kind(chance):
    """What a pod requests: resources, rules and claims."""
    gpus, cpu = chance.choice(SHAPES)
    claimed = chance.choice(("", "", "", "count", "all", "share"))
    return {
        "gpus": 0 if claimed else gpus,
        "cpu": str(cpu),
        "app": chance.choice(APPS),
        "rule": chance.choice(("", "", "", "apart", "near", "prefers", "spread")),
        "key": chance.choice(LEVELS),
        "other": chance.choice(APPS),
        "disk": chance.choice(("", "", "", "ssd")),
        "claimed": claimed,
        "count": chance.randint(1, 4),
        "expression": chance.choice(EXPRESSIONS),
    }


def _pod(chance, name, at, kind, annotations, options):
    made = pod(
        name,
        kind["gpus"],
        node=at,
        created=float(chance.randint(0, 500)),
        requests={"cpu": kind["cpu"]},
        labels={"app": kind["app"]},
        annotations=annotations,
        node_selector={"disk": kind["disk"]} if kind["disk"] else {},
        **_rules(kind),
        **options,
    )
    if kind["claimed"] and not at:
        yield _claim(kind, name)
        made = claiming(made, f"{name}-gpu")
    yield made


def _rules(kind):
    selector = LabelSelector(match_labels={"app": kind["other"]})
    term = PodAffinityTerm(label_selector=selector, topology_key=kind["key"])
    if kind["rule"] == "spread":
        spread = TopologySpreadConstraint(topology_key=kind["key"], label_selector=selector)
        return {"topology_spread_constraints": (spread,)}
    weighted = WeightedPodAffinityTerm(weight=10, pod_affinity_term=term)
    found = {
        "apart": Affinity(pod_anti_affinity=PodAffinity(required=(term,))),
        "near": Affinity(pod_affinity=PodAffinity(required=(term,))),
        "prefers": Affinity(pod_anti_affinity=PodAffinity(preferred=(weighted,))),
    }.get(kind["rule"])
    return {"affinity": found} if found else {}


def _claim(kind, owner):
    name = f"{owner}-gpu"
    if kind["claimed"] == "count":
        return claim(name, kind["count"], selector=kind["expression"], owner=owner)
    exact = {"deviceClassName": "gpu.nvidia.com"}
    if kind["claimed"] == "all":
        exact["allocationMode"] = "All"
    else:
        exact["capacity"] = {"requests": {"memory": f"{7 * kind['count']}Gi"}}
    requests = [{"name": f"r{i}", "exactly": exact} for i in range(kind["count"])]
    return claim_of(name, *requests, owner=owner)
