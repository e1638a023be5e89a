"""No required rule is broken by plans of files, simulations and questions about changes.

They run the planner of the live scheduler on clusters that are made in other ways; every plan that
they carry out is judged beside the pods that stand on nodes before it.
"""

import random

import msgspec
import pytest

from kai_py.config import Configuration
from kai_py.embedded.resources import PODS
from kai_py.simulate.changes import AddNodes, AddObjects, DrainNode
from kai_py.simulate.cluster import SimulatedCluster
from kai_py.simulate.files.object_files import ObjectsInFiles
from kai_py.simulate.offline_cluster import OfflineCluster
from kai_py.simulate.offline_plan import plan_objects
from kai_py.simulate.plan_execution import PlanExecution
from kai_py.simulate.what_if import LoadedCluster
from tests.plan.placement.test_exact_rules import HOST, RACK, ZONE, Kind, as_pod
from tests.plan.placement.test_rules_hold import broken_rules, random_kind
from tests.simulate.clusters import NOW, priority_class, queue

pytestmark = pytest.mark.slow


class RuleBrokenError(AssertionError):
    """A plan binds a pod where a required rule forbids it."""


def node(chance: random.Random, name: str):
    rack, zone = chance.choice("ab"), chance.choice("ab")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, RACK: f"r{rack}", ZONE: f"z{zone}"}},
        "status": {
            "allocatable": {"cpu": "16", "pods": "110", "nvidia.com/gpu": chance.choice("24")},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def job(chance: random.Random, name: str, kind: Kind):
    spec = msgspec.to_builtins(as_pod(kind, name).spec)
    requests = spec["containers"][0]["resources"]["requests"]
    amounts = {"requests": requests, "limits": requests}
    container = {"name": "main", "image": "i", "resources": amounts}
    own = {"containers": [container], "restartPolicy": "Never", "schedulerName": "kai-scheduler"}
    if chance.random() < 0.3:
        own["priorityClassName"] = "high"
    if "affinity" in spec:
        own["affinity"] = spec["affinity"]
    size = chance.choice((1, 1, 2, 3))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "annotations": {"scheduling.kai.io/queue-name": chance.choice("ab")},
        },
        "spec": {
            "parallelism": size,
            "completions": size,
            "backoffLimit": 1000,
            "template": {"metadata": {"labels": {"app": kind.app}}, "spec": own},
        },
    }


class World:
    """Nodes, Jobs whose pods have rules, and what judges plans of them."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.kinds = {app: random_kind(chance, app) for app in "abcd"}
        self.nodes = [node(chance, f"n{i}") for i in range(chance.randint(2, 5))]
        shared = [queue("a", 4), queue("b", 4), priority_class("high", 50)]
        self.jobs = [
            job(chance, f"g{i}", self.kinds[chance.choice("abcd")])
            for i in range(chance.randint(2, 6))
        ]
        half = len(self.jobs) // 2
        self.first = [*shared, *self.nodes, *self.jobs[:half]]
        self.later = self.jobs[half:]

    def judge(self, plan, pods, nodes) -> None:
        """Raise RuleBrokenError for a pod of ``plan`` that may not be beside ``pods``."""
        labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in nodes}
        apps = {each["metadata"]["name"]: each["metadata"]["labels"]["app"] for each in pods}
        where = {
            each["metadata"]["name"]: each["spec"]["nodeName"]
            for each in pods
            if each["spec"].get("nodeName")
        }
        bound = {p.pod.name: p.node for gang in plan.placements for p in gang.pods}
        here = {name: (self.kinds[apps[name]], at) for name, at in (where | bound).items()}
        for name, at in bound.items():
            others = {other: each for other, each in here.items() if other != name}
            said = broken_rules(labels, name, self.kinds[apps[name]], at, others)
            if said:
                raise RuleBrokenError(said)


@pytest.fixture
def judged(monkeypatch):
    """The world whose plans are judged, and how many pods they bound."""
    state = {"bound": 0}

    def simulated(execution, plan):
        nodes = execution.api.list(execution.api.registry.named("nodes"))
        state["world"].judge(plan, execution.api.list(PODS), nodes)
        state["bound"] += sum(len(each.pods) for each in plan.placements)
        return execute(execution, plan)

    def offline(cluster, plan):
        documents = [*cluster._documents.values()]
        pods = [each for each in documents if each["kind"] == "Pod"]
        state["world"].judge(plan, pods, [each for each in documents if each["kind"] == "Node"])
        state["bound"] += sum(len(each.pods) for each in plan.placements)
        return carry_out(cluster, plan)

    execute, carry_out = PlanExecution.execute, OfflineCluster.carry_out
    monkeypatch.setattr(PlanExecution, "execute", simulated)
    monkeypatch.setattr(OfflineCluster, "carry_out", offline)
    return state


def test_simulations_break_no_rule(judged):
    for seed in range(12):
        world = judged["world"] = World(seed)
        simulated = SimulatedCluster(Configuration(), start=NOW)
        simulated.embedded.create_all(world.first)
        simulated.settle(30)
        simulated.embedded.create_all(world.later)
        simulated.settle(30)
    assert judged["bound"] > 40


def test_answers_about_changes_break_no_rule(judged):
    started = 0
    for seed in range(100, 108):
        world = judged["world"] = World(seed)
        simulated = SimulatedCluster(Configuration(), start=NOW)
        simulated.embedded.create_all(world.first)
        simulated.settle(30)
        loaded = LoadedCluster(simulated.documents(), Configuration(), simulated.clock.now())
        changes = [DrainNode("n0"), AddNodes("n1", 1), AddObjects(world.later)]
        started += len(loaded.settled(*changes).running)
    assert started > 10


def test_plans_of_files_break_no_rule(judged):
    for seed in range(200, 225):
        world = judged["world"] = World(seed)
        given_objects = ObjectsInFiles([*world.first, *world.later])
        plan_objects(given_objects, Configuration(), until_rest=True)
    assert judged["bound"] > 80
