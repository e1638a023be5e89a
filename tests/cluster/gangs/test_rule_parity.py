"""Rules between pods, asked of kube-scheduler's filter plugins and of ours, on random clusters."""

import random

import pytest

from tests.cluster.gangs.filter_oracle import Document, judge

HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}, "third": {"team": "a"}}
CLUSTERS = 2_000
ASKED = 4
TAINT = {"key": "team", "value": "red", "effect": "NoSchedule"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
TOLERATIONS: tuple[Document, ...] = (
    {"key": "team", "operator": "Exists"},
    {"operator": "Exists"},
    {"key": "gpu", "value": "1", "effect": "NoSchedule"},
    {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
)


def node(chance: random.Random, name: str) -> Document:
    labels = {HOST: name, "disk": chance.choice(("ssd", "hdd"))}
    if chance.random() < 0.85:
        labels[ZONE] = chance.choice("xyz")
    if chance.random() < 0.85:
        labels[RACK] = chance.choice("12")
    labels["number"] = chance.choice(("1", "5", "10", "x"))
    if chance.random() < 0.1:
        labels[HOST] = "shared"
    taints: list[Document] = [TAINT] if chance.random() < 0.2 else []
    if chance.random() < 0.15:
        effect = chance.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        taints.append({"key": "gpu", "value": chance.choice(("1", "")), "effect": effect})
    cordoned = chance.random() < 0.1
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints + [CORDON] * cordoned, "unschedulable": cordoned},
        "status": {
            "allocatable": {"cpu": chance.choice(("2", "8")), "memory": "8Gi", "pods": "6"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def labels(chance: random.Random) -> dict[str, str]:
    found = {"app": chance.choice("abc")}
    if chance.random() < 0.5:
        found["tier"] = chance.choice(("front", "back"))
    return found


def selector(chance: random.Random) -> Document | None:
    if chance.random() < 0.05:
        return None
    if chance.random() < 0.05:
        return {}
    if chance.random() < 0.6:
        return {"matchLabels": {"app": chance.choice("abc")}}
    operator = chance.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    key = chance.choice(("app", "tier"))
    values = {"app": ["a", "b"], "tier": ["front"]}[key]
    expression = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        expression["values"] = values
    return {"matchExpressions": [expression]}


def term(chance: random.Random) -> Document:
    found: Document = {"topologyKey": chance.choice((HOST, ZONE, RACK))}
    chosen = selector(chance)
    if chosen is not None:
        found["labelSelector"] = chosen
    if chance.random() < 0.2:
        found["namespaces"] = chance.sample(list(NAMESPACES), chance.choice((1, 2)))
    if chance.random() < 0.2:
        # Of NotIn and DoesNotExist kube-scheduler 1.36 makes any namespace: it drops what it has
        # resolved (mergeAffinityTermNamespacesIfNotEmpty takes the term by value).
        of_b = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["b"]}]}
        found["namespaceSelector"] = chance.choice(({}, {"matchLabels": {"team": "a"}}, of_b))
    return found


def node_term(chance: random.Random) -> Document:
    """A term of a required node affinity."""
    expressions = []
    for _ in range(chance.choice((0, 1, 1, 1, 2))):
        operator = chance.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        expression: Document = {
            "key": chance.choice(("disk", "number", RACK, "none")),
            "operator": operator,
        }
        if operator in ("In", "NotIn"):
            expression["values"] = chance.sample(["ssd", "hdd", "1", "2", "5"], 2)
        if operator in ("Gt", "Lt"):
            expression |= {"key": "number", "values": [chance.choice("147")]}
        expressions.append(expression)
    found: Document = {"matchExpressions": expressions}
    if chance.random() < 0.2:
        field: Document = {"key": "metadata.name", "operator": chance.choice(("In", "NotIn"))}
        found["matchFields"] = [field | {"values": ["n1"]}]
    return found


def rules(chance: random.Random, likely: float) -> Document | None:
    found: Document = {}
    if chance.random() < likely:
        terms = [term(chance) for _ in range(chance.choice((1, 1, 2)))]
        found["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if chance.random() < 0.2:
        preferred = {"weight": 5, "podAffinityTerm": term(chance)}
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [preferred]
    return found or None


def spread(chance: random.Random) -> Document:
    found: Document = {
        "maxSkew": chance.choice((1, 1, 2, 3)),
        "topologyKey": chance.choice((HOST, ZONE, RACK)),
        "whenUnsatisfiable": chance.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
    }
    chosen = selector(chance)
    if chosen is not None:
        found["labelSelector"] = chosen
    if found["whenUnsatisfiable"] == "DoNotSchedule" and chance.random() < 0.2:
        found["minDomains"] = chance.choice((1, 2, 3, 6))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if chance.random() < 0.5:
            found[policy] = chance.choice(("Ignore", "Honor"))
    if chosen is not None and chance.random() < 0.2:
        found["matchLabelKeys"] = ["tier"]
    return found


def pod(chance: random.Random, name: str, at: str = "") -> Document:
    """``at``: the node of a pod that stands; one that is asked about has rules of all kinds."""
    affinity: Document = {}
    near = None if at else rules(chance, 0.4)
    apart = rules(chance, 0.3 if at else 0.4)
    if near:
        affinity["podAffinity"] = near
    if apart:
        affinity["podAntiAffinity"] = apart
    spec: Document = {
        "schedulerName": "default-scheduler" if at else "kai-scheduler",
        "priority": 0,
        "containers": [
            {
                "name": "main",
                "image": "none",
                "resources": {"requests": {"cpu": chance.choice(("0", "500m", "1"))}},
            }
        ],
    }
    if affinity:
        spec["affinity"] = affinity
    if at:
        spec["nodeName"] = at
    else:
        if chance.random() < 0.4:
            constraints = [spread(chance) for _ in range(chance.choice((1, 1, 2)))]
            by_key = {
                (each["topologyKey"], each["whenUnsatisfiable"]): each for each in constraints
            }
            spec["topologySpreadConstraints"] = [*by_key.values()]
        if chance.random() < 0.3:
            spec["nodeSelector"] = {"disk": chance.choice(("ssd", "hdd"))}
        if chance.random() < 0.3:
            terms = [node_term(chance) for _ in range(chance.choice((1, 1, 2)))]
            required = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
            spec["affinity"] = {**affinity, "nodeAffinity": required}
        if chance.random() < 0.6:
            spec["tolerations"] = chance.sample(TOLERATIONS, chance.choice((1, 1, 2)))
    meta: Document = {
        "name": name,
        "uid": name,
        "namespace": chance.choice(list(NAMESPACES)),
        "labels": labels(chance),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if at and chance.random() < 0.15:
        meta["deletionTimestamp"] = "2026-01-01T00:00:01Z"
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running" if at else "Pending"}}


def random_cluster(seed: int) -> Document:
    chance = random.Random(seed)
    nodes = [node(chance, f"n{i}") for i in range(chance.randint(2, 6))]
    names = [each["metadata"]["name"] for each in nodes]
    return {
        "namespaces": [
            {"metadata": {"name": name, "labels": found}} for name, found in NAMESPACES.items()
        ],
        "nodes": nodes,
        "pods": [
            pod(chance, f"stands-{i}", chance.choice(names)) for i in range(chance.randint(0, 10))
        ],
        "asked": [pod(chance, f"asked-{i}") for i in range(ASKED)],
    }


@pytest.mark.slow
@pytest.mark.cluster
def test_our_filters_pass_the_nodes_of_kube_schedulers_plugins():
    judge(random_cluster, range(200))


@pytest.mark.nightly
@pytest.mark.cluster
def test_our_filters_pass_the_nodes_of_kube_schedulers_plugins_on_many_clusters():
    judge(random_cluster, range(200, 200 + CLUSTERS))
