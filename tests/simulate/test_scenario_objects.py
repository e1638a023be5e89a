"""The objects that a scenario is made of, and the texts of its report, field by field."""

import random
from collections import Counter
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from kai_py.api.queue import CHECKPOINT_BY_KEY, CHECKPOINTED_KEY
from kai_py.api.references import PodRef
from kai_py.plan.plan import Stage
from kai_py.simulate.scenarios import report
from kai_py.simulate.scenarios.entitlement import GangRest, _most_within
from kai_py.simulate.scenarios.fifo import _Machines
from kai_py.simulate.scenarios.measurements import GangWait
from kai_py.simulate.scenarios.scenario import Arrival, NodeGroup, ScenarioJob
from kai_py.simulate.scenarios.simulation import Interruptions
from kai_py.simulate.scenarios.workloads import job_manifest, node_manifests, priority_class_name

GPU, OURS = "nvidia.com/gpu", "scheduling.kai.io"


def flat(value, path=""):
    """The leaves of a manifest by their paths."""
    if not isinstance(value, dict):
        return {path: value}
    return {k: v for key, each in value.items() for k, v in flat(each, f"{path}/{key}").items()}


def job(**fields):
    made = ScenarioJob.model_validate({"name": "j", "queue": "q", **fields}, by_name=True)
    return flat(job_manifest(Arrival(0.0, "j-1", made), 5.0))


MARKS = "/metadata/annotations"
POD = "/spec/template/spec"
LIMITS = f"{POD}/containers"


def container(**amounts):
    limits = {"cpu": "1", "memory": "1Gi"} | amounts
    return [{"name": "main", "image": "simulated", "resources": {"limits": limits}}]


def affinity(**labels):
    expressions = [{"key": k, "operator": "In", "values": v} for k, v in labels.items()]
    return [{"matchExpressions": expressions}]


TERMS = f"{POD}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ({"min_available": 1}, {f"{MARKS}/{OURS}/min-available": "1"}),
        ({"expected_minutes": 90}, {f"{MARKS}/{OURS}/expected-runtime": "1h30m"}),
        ({"checkpoint_minutes": 10}, {f"{MARKS}/{OURS}/checkpoint-interval": "10m"}),
        ({"spot": "only"}, {f"{MARKS}/{OURS}/spot": "only"}),
        ({"pods": 3}, {"/spec/parallelism": 3, "/spec/completions": 3}),
        ({"priority": -5}, {f"{POD}/priorityClassName": "priority-below-5"}),
        ({"gpus_per_pod": 0}, {LIMITS: container()}),
        ({"gpus_per_pod": 2}, {LIMITS: container(**{GPU: "2"})}),
        ({"cpu_per_pod": 0.5}, {LIMITS: container(**{GPU: "1", "cpu": "0.5"})}),
        (
            {"gpus_per_pod": 0.25},
            {LIMITS: container(), "/spec/template/metadata/annotations/gpu-fraction": "0.25"},
        ),
        ({"node_selector": {"a": ["x"]}}, {f"{POD}/nodeSelector/a": "x"}),
        (
            {"node_selector": {"a": ["x", "y"]}},
            {f"{TERMS}/nodeSelectorTerms": affinity(a=["x", "y"])},
        ),
        (
            {"node_selector": {"a": ["x", "y"], "b": ["z"]}},
            {f"{TERMS}/nodeSelectorTerms": affinity(a=["x", "y"]), f"{POD}/nodeSelector/b": "z"},
        ),
    ],
)
def test_a_field_of_a_job_changes_what_it_is_for_and_nothing_else(fields, written):
    plain, changed = job(), job(**fields)
    assert {key: value for key, value in changed.items() if plain.get(key) != value} == written
    assert plain.keys() <= changed.keys()


def test_a_node_has_what_its_group_says():
    group = NodeGroup.model_validate(
        {"name": "n", "count": 2, "gpus": 4, "spot": True, "labels": {"zone": "a"}}, by_name=True
    )
    made = [*node_manifests(group)]
    assert [each["metadata"]["labels"] for each in made] == [
        {"kubernetes.io/hostname": name, "karpenter.sh/capacity-type": "spot", "zone": "a"}
        for name in ("n-0", "n-1")
    ]
    assert {each["status"]["allocatable"][GPU] for each in made} == {"4"}
    assert priority_class_name(0) == "priority-0"


def test_times_are_told_in_the_unit_that_fits():
    times = {0: "0 s", 89: "89 s", 90: "2 min", 89 * 60: "89 min", 90 * 60: "1.5 h"}
    assert {seconds: report.duration(seconds) for seconds in times} == times


def wait(gang, seconds=None, gpus=1.0):
    return GangWait(gang, "q", gpus, 1, seconds)


def test_gangs_are_counted_by_powers_of_two():
    amounts = (0, 0.5, 1, 1.5, 2, 3, 4, 4.5, 8, 9)
    groups = report.size_groups([wait("g", gpus=each) for each in amounts])
    assert {name: [each.gpus for each in group] for name, group in groups.items()} == {
        "no GPU": [0],
        "up to 1": [0.5, 1],
        "2": [1.5, 2],
        "3 to 4": [3, 4],
        "5 to 8": [4.5, 8],
        "9 to 16": [9],
    }


def test_what_never_started_is_told_once_for_each_reason():
    pending = [
        SimpleNamespace(gang=gang, stage=stage, message=f"{gang} waits")
        for gang, stage in (
            ("b", Stage.QUEUE_MAX),
            ("a", Stage.QUEUE_MAX),
            ("c", Stage.RESOURCES),
            ("ran", Stage.RESOURCES),
            ("unknown", Stage.RESOURCES),
        )
    ]
    waits = [*map(wait, "abc"), wait("ran", 3.0)]
    found = report._never_started(SimpleNamespace(waits=waits, unplaced=pending))
    assert sorted((each.gangs, each.stage, each.message) for each in found) == [
        (1, Stage.RESOURCES, "c waits"),
        (2, Stage.QUEUE_MAX, "a waits"),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_queue_is_entitled_to_the_most_that_fits_of_what_waits(seed):
    chance = random.Random(seed)
    gangs = Counter()
    for _ in range(chance.randint(1, 4)):
        pods = chance.randint(1, 4)
        least = chance.randint(0, pods)
        gangs[GangRest("q", chance.choice((0.5, 1.0, 2.0, 3.0)), pods, least)] += 1
    of_each = [
        [0.0, *(each.gpus_per_pod * pods for pods in range(each.least, each.pods + 1))]
        for each in gangs.elements()
    ]
    for rest in (0.0, 0.5, 1.0, 2.5, 6.0, 9.0, 100.0):
        sums = (sum(each) for each in product(*of_each))
        assert _most_within(rest, gangs) == max(each for each in sums if each <= rest)


def test_nodes_cost_while_they_are_there():
    def group(name, price, *, spot=False):
        return SimpleNamespace(name=name, spot=spot, count=2, price_per_hour=price)

    nodes = [group("a", 3.0), group("b", 1.0), group("c", 2.0, spot=True), group("d", 0.0)]
    scenario = SimpleNamespace(nodes=nodes, hours=10.0)
    found = report._cost(SimpleNamespace(scenario=scenario, away_hours={"c": 5.0}))
    assert found == {"on demand": 80.0, "spot": 30.0}


@pytest.mark.parametrize(
    ("known", "is_answered"),
    [
        ({"uid": "u", "annotations": {CHECKPOINT_BY_KEY: "soon"}}, True),
        ({"uid": "u", "annotations": {}}, False),
        ({"uid": "u"}, False),
        ({"uid": "made again", "annotations": {CHECKPOINT_BY_KEY: "soon"}}, False),
        (None, False),
    ],
)
def test_a_pod_answers_once_it_has_saved_its_work_if_it_is_still_asked(known, is_answered):
    pod, edited = known and {"metadata": known}, []
    api = SimpleNamespace(find=lambda *_: pod, edit=lambda *each: edited.append(each[-1](pod)))
    events = SimpleNamespace(_cluster=SimpleNamespace(embedded=SimpleNamespace(api=api)))
    Interruptions._answer(events, PodRef("n", "p", "u"))
    answers = [each["metadata"]["annotations"][CHECKPOINTED_KEY] for each in edited]
    assert answers == (["soon"] if is_answered else [])


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"gpus_per_pod": 0}, [True, True, False]),
        ({"gpus_per_pod": 0, "cpu_per_pod": 8}, [True, False, False]),
        ({"gpus_per_pod": 0, "memory_gib_per_pod": 8}, [False, True, False]),
        ({"gpus_per_pod": 1}, [True, True, False]),
        ({"gpus_per_pod": 2}, [True, False, False]),
        ({"gpus_per_pod": 0.5}, [True, True, False]),
        ({"gpus_per_pod": 0.25, "node_selector": {"zone": ["b"]}}, [False, True, False]),
        ({"gpus_per_pod": 0, "node_selector": {"zone": ["a", "b"]}}, [True, True, False]),
        ({"gpus_per_pod": 0, "node_selector": {"zone": ["a"], "x": ["y"]}}, [False] * 3),
    ],
)
def test_a_pod_fits_where_all_of_its_amounts_and_labels_are(fields, fits):
    machines = _Machines(
        gpus=np.array([[1.0, 1.0], [1.0, 0.5], [0.0, 0.0]]),
        cpu=np.array([8.0, 4.0, 0.5]),
        memory_gib=np.array([4.0, 8.0, 8.0]),
        labels=[{"zone": "a"}, {"zone": "b"}, {"zone": "a"}],
    )
    made = ScenarioJob.model_validate({"name": "j", "queue": "q", **fields}, by_name=True)
    assert machines.fits(made).tolist() == fits
