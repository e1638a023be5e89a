"""Absurd objects, in one process without an API: the canary of another tenant always starts.

The files are applied to API servers too, in ``tests/cluster/faults/test_poison.py``.
"""

import copy
import gc
import logging
import random
import weakref
from collections.abc import Callable

import pytest

from kai_py.plan.cycle import run
from kai_py.plan.cycle.opening import open_cycle
from kai_py.plan.plan import Plan
from tests.support.cluster.api import Document
from tests.support.poison.contention import in_use
from tests.support.poison.corpus import Poison, corpus
from tests.support.poison.document import document
from tests.support.poison.fuzz import absurd
from tests.support.poison.objects import ordinary
from tests.support.poison.process import Process, canary, small_world, started

CORPUS = corpus()
SUITE_WORLDS, NIGHTLY_WORLDS = 40, 2400
"""Each has about 45 objects, half of them fuzzed: 100,000 in the night."""
SUITE_CLUSTERS, NIGHTLY_CLUSTERS = 4, 200
"""Each has 91 objects, which seldom matter to each other if more than a sixth is fuzzed."""


@pytest.fixture(autouse=True)
def silent(caplog):
    """What cannot be decoded is logged by the thousand."""
    caplog.set_level(logging.CRITICAL, "kai_py.watch.collection")


@pytest.fixture
def process():
    made = Process()
    made.put(*small_world())
    return made


def with_uids(poison: Poison) -> list[Document]:
    """The objects as a server and its claim controller have them, in a namespace of their own."""
    documents = copy.deepcopy(list(poison.documents))
    for each in documents:
        each["metadata"].setdefault("uid", f"uid-{poison.name}-{each['metadata']['name']}")
        if each["metadata"].get("namespace"):
            each["metadata"]["namespace"] = poison.name
    return [*documents, *made_claims(documents)]


def made_claims(documents: list[Document]) -> list[Document]:
    """The claims of pods that name a template, whose names are written on them."""
    templates = {
        each["metadata"]["name"]: each["spec"]["spec"]
        for each in documents
        if each["kind"] == "ResourceClaimTemplate"
    }
    made = []
    for pod in (each for each in documents if each["kind"] == "Pod"):
        statuses = pod.setdefault("status", {}).setdefault("resourceClaimStatuses", [])
        for use in pod["spec"].get("resourceClaims") or ():
            spec = templates.get(use.get("resourceClaimTemplateName"))
            if spec is None:
                continue
            meta = pod["metadata"]
            name = f"{meta['name']}-{use['name']}"
            statuses.append({"name": use["name"], "resourceClaimName": name})
            owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
            claim = document("resource.k8s.io/v1", "ResourceClaim", name, meta["namespace"])
            claim["metadata"] |= {"uid": f"{meta['uid']}-{use['name']}"}
            claim["metadata"] |= {"ownerReferences": [{**owner, "controller": True}]}
            made.append({**claim, "spec": spec})
    return made


def canary_starts(process: Process, number: int = 0) -> None:
    gang = canary(number)
    process.put(*gang)
    plan = process.cycle()
    assert {each["metadata"]["name"] for each in gang} <= started(plan), plan.unplaced
    assert not (*plan.set_aside, *plan.failed_extensions)
    process.show()
    process.remove(*gang)


@pytest.mark.slow
def test_the_corpus_is_large_and_says_what_it_tries():
    assert len(CORPUS) >= 125
    assert sum(len(each.documents) for each in CORPUS) >= 1000
    assert all(each.tries.endswith(".") or each.needs for each in CORPUS)


@pytest.mark.slow
@pytest.mark.parametrize("poison", CORPUS, ids=lambda each: each.name)
def test_one_alone(process, poison):
    documents = with_uids(poison)
    process.put(*documents)
    canary_starts(process)
    assert not [each for each in process.cycle().problems if "set aside" in each.message]
    process.remove(*documents)
    canary_starts(process, 1)


@pytest.mark.slow
def test_the_state_of_a_cycle_dies_with_its_last_reference(process, monkeypatch):
    """Without the garbage collector, which stops the scheduler: also with claims that fail."""
    opened = []

    def remembered(*arguments):
        state = open_cycle(*arguments)
        opened.extend(map(weakref.ref, (state, state.statement)))
        return state

    monkeypatch.setattr(run, "open_cycle", remembered)
    process.put(
        *(each for poison in CORPUS if "claim" in poison.name for each in with_uids(poison))
    )
    gc.disable()
    try:
        process.cycle()
        process.put(*canary())
        process.cycle()
        assert len(opened) >= 4
        assert [each() for each in opened] == [None] * len(opened)
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_all_together_in_any_order(process, seed):
    documents = [each for poison in CORPUS for each in with_uids(poison)]
    random.Random(seed).shuffle(documents)
    process.put(*documents)
    canary_starts(process)
    process.remove(*documents)
    canary_starts(process, 1)


def fuzzed(
    seed: int,
    objects: Callable[[], list[Document]],
    part: float,
    check: Callable[[Process], None] = lambda _: None,
) -> None:
    """A world in which ``part`` of the objects is fuzzed, twice with other values, and its removal.

    ``check``: beside what holds for every world.
    """
    source = random.Random(seed)
    process = Process()
    process.put(*small_world())
    for number in range(2):
        documents = [absurd(each, source) if source.random() < part else each for each in objects()]
        source.shuffle(documents)
        process.put(*documents)
        canary_starts(process, number)
        check(process)
    process.remove(*documents)
    canary_starts(process, 2)


def fuzzed_world(seed: int) -> None:
    fuzzed(seed, ordinary, 0.5)


@pytest.mark.parametrize("seed", range(SUITE_WORLDS))
def test_fuzzed_objects(seed):
    fuzzed_world(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("hundred", range(SUITE_WORLDS, NIGHTLY_WORLDS, 100))
def test_100_000_fuzzed_objects(hundred):
    for seed in range(hundred, hundred + 100):
        fuzzed_world(seed)


def fuzzed_cluster(seed: int) -> None:
    """A cluster in use, of which details are shown and nothing of others is set aside."""
    fuzzed(seed, in_use, 0.15, nothing_of_others_is_set_aside)


def nothing_of_others_is_set_aside(process: Process) -> None:
    process.show_details()
    assert not set_aside_of_others(process.cycle())


def set_aside_of_others(plan: Plan) -> list[str]:
    """What cannot be processed beside the objects of the tenant."""
    problems = [each for each in plan.problems if "set aside" in each.message]
    return [each.message for each in problems if each.object.namespace != "tenant"]


@pytest.mark.slow
def test_a_cluster_in_use_evicts_waits_and_leaves_nodes():
    """Otherwise its fuzzed values would reach none of the code that weighs gangs."""
    process = Process()
    process.put(*small_world(), *in_use())
    plan = process.cycle()
    process.show_details()
    assert not process.rejected
    assert not [each for collection in process.collections.values() for each in collection.rejected]
    assert {each.action for each in plan.evictions} >= {"consolidate", "stale"}
    assert {each.gang for each in plan.nominations} >= {"tenant/PodGroup/reclaims"}
    assert {"to-align", "wants-part", "uses-partition", "uses-either"} <= started(plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SUITE_CLUSTERS))
def test_fuzzed_objects_of_a_cluster_in_use(seed):
    fuzzed_cluster(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("ten", range(SUITE_CLUSTERS, NIGHTLY_CLUSTERS, 10))
def test_fuzzed_objects_of_many_clusters_in_use(ten):
    for seed in range(ten, ten + 10):
        fuzzed_cluster(seed)
