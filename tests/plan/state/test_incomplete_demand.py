"""Requests that cannot be served yet are no demand: fair shares are as without them."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import PodResourceClaim
from kai_py.api.records.volume import Volume
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.plan.cycle.infeasible_demand import RECREATION_SECONDS
from kai_py.plan.session.settings import CycleSettings
from kai_py.plan.state.eviction_history import GangEviction
from kai_py.policy.fairness_rules import KAI
from kai_py.snapshot.accounting import GPU
from tests.support.records import from_json
from tests.support.scenario import START, cluster, evicted, job_with_pods, node, pod, queue

HELD = [pod(f"held-{n}", queue="held", node="a") for n in range(8)]
WAITING = [pod(f"wants-{n}", queue="wants") for n in range(8)]
"""A queue has all GPUs, another one wants them."""


def without_a_pod(**annotations):
    owner, *pods = job_with_pods("short", 8, queue="lacks")
    meta = replace(owner.metadata, annotations={**owner.metadata.annotations, **annotations})
    return [replace(owner, metadata=meta), *pods[:-1]]


def each(**spec):
    return [pod(f"lacks-{n}", queue="lacks", **spec) for n in range(8)]


VOLUME = from_json(Volume, {"name": "data", "persistentVolumeClaim": {"claimName": "absent"}})
FIXED = {"scheduling.kai.io/preemptibility": "non-preemptible"}
LACKING = {
    "a pod": without_a_pod(),
    "volumes": each(volumes=(VOLUME,)),
    "claims": each(resource_claims=(PodResourceClaim(name="c", resource_claim_name="absent"),)),
    "what non-preemptible pods need": each(annotations=FIXED),
    "a valid annotation": each(annotations={"scheduling.kai.io/preemptibility": "maybe"}),
}


def shared(*objects, **options):
    queues = queue("held"), queue("wants"), queue("lacks")
    return cluster(node("a"), *queues, HELD, WAITING, *objects, **options)


def shares(plan):
    return {share.queue: share.fair_share[GPU] for share in plan.queues}


@pytest.mark.parametrize("lacking", LACKING)
def test_what_lacks_something_takes_no_share_from_others(lacking):
    plan = shared(LACKING[lacking]).plan()
    assert shares(plan) == {"held": 4, "wants": 4, "lacks": 0}
    assert len(evicted(plan)) == 4


@pytest.mark.parametrize("lacking", LACKING)
def test_kai_counts_it(lacking):
    assert shares(shared(LACKING[lacking], rules=KAI).plan())["lacks"] > 0


def test_it_counts_once_nothing_is_missing():
    waits = shared(without_a_pod())
    last = job_with_pods("short", 8, queue="lacks")[-1]
    assert shares(waits.plan())["lacks"] == 0
    assert shares(waits.add(last).plan())["lacks"] == pytest.approx(8 / 3)


def test_elastic_pods_count_beside_one_that_lacks_its_volume():
    elastic = without_a_pod(**{"kai.scheduler/batch-min-member": "1"})
    assert shares(shared(elastic).plan())["lacks"] == pytest.approx(8 / 3)
    elastic[2:] = [replace(p, spec=replace(p.spec, volumes=(VOLUME,))) for p in elastic[2:]]
    assert shares(shared(elastic).plan())["lacks"] == 1


def test_non_preemptible_pods_count_as_far_as_they_are_deserved():
    running = pod("runs", queue="lacks", node="a", annotations=FIXED)
    waits = shared(each(annotations=FIXED)).remove(HELD[0]).add(running)
    assert shares(waits.plan())["lacks"] == 1
    assert shares(waits.add(queue("lacks", 3)).plan())["lacks"] == 3


def test_a_pod_that_fits_a_new_node_is_counted_by_what_its_queue_deserves():
    """The gangs are those of the cycle before; only the nodes have changed."""
    large = pod("large", 16, queue="lacks", annotations=FIXED)
    waits = shared(large)
    assert shares(waits.plan())["lacks"] == 0
    assert shares(waits.add(node("b", 16)).plan())["lacks"] == 0


def test_a_gang_that_was_just_evicted_counts_while_its_pods_are_created():
    waits = shared(without_a_pod())
    waits.memory.evictions.by_gang["default/Job/short"] = [GangEviction(START + 1000.0)]
    assert shares(waits.plan(1010.0))["lacks"] == pytest.approx(8 / 3)
    over = START + 1000.0 + RECREATION_SECONDS
    assert next_deadline(waits.snapshot(1010.0), CycleSettings(), waits.memory) == over
    assert shares(waits.plan(1060.0))["lacks"] == 0
