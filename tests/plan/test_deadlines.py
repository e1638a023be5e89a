"""When does time alone change what the next plan says?"""

from datetime import datetime

from msgspec.structs import replace

from kai_py.api.settings import EvictionConfig
from kai_py.config import Configuration
from kai_py.plan.cycle.deadlines import next_deadline
from kai_py.planner import cycle_settings
from tests.dialects.feeding import CREATED
from tests.dialects.feeding import Cluster as Documents
from tests.dialects.feeding import node as document_node
from tests.dialects.feeding import pod as document_pod
from tests.dialects.kai.objects import kai_queue
from tests.support.scenario import (
    START,
    at,
    claiming_job,
    cluster,
    device_class,
    gpu_slice,
    job,
    job_with_pods,
    node,
    placed,
    pod,
    queue,
)

SETTINGS = cycle_settings(Configuration())


def deadline(*objects, now=1000.0, settings=SETTINGS):
    """Seconds after the start of the scenario, None if there is no deadline."""
    world = cluster(node("a", 4), queue("team", 8), *objects)
    found = next_deadline(world.snapshot(now), settings)
    return None if found is None else found - START


def short_gang():
    owner = job("train", 3, "team")
    return [owner, *(pod(f"train-{i}", owner=owner, node="a") for i in range(2))]


def test_the_end_of_a_grace_is_a_deadline_until_it_has_passed():
    world = cluster(node("a", 4), queue("team", 8), short_gang())
    assert next_deadline(world.snapshot(1000.0), SETTINGS) == START + 1060
    assert next_deadline(world.snapshot(1059.5), SETTINGS) == START + 1060
    assert next_deadline(world.snapshot(1060.0), SETTINGS) is None
    endless = cycle_settings(Configuration(eviction=EvictionConfig(staleness_grace=0.0)))
    assert next_deadline(world.snapshot(1060.0), endless) is None


def test_nothing_is_due_for_a_gang_that_is_whole_or_waits_without_terms():
    assert deadline(job_with_pods("runs", 2, queue="team", node="a")) is None
    assert deadline(job_with_pods("waits", 9, queue="team")) is None


def started(pods, at_second):
    """Pods with the moment at which they were bound."""
    return [replace(each, status=replace(each.status, start_time=at(at_second))) for each in pods]


def test_min_runtimes_are_due_only_while_a_gang_waits():
    safe = cycle_settings(
        Configuration(eviction=EvictionConfig(preempt_min_runtime=90.0, reclaim_min_runtime=30.5))
    )
    owner, *pods = job_with_pods("runs", 2, queue="team", node="a")
    runs = [owner, *started(pods, 980.0)]
    waits = job_with_pods("waits", 9, queue="team")
    assert deadline(runs, settings=safe) is None
    assert deadline(runs, waits, settings=safe) == 1011.0
    assert deadline(runs, waits, settings=safe, now=1012.0) == 1070.0
    assert deadline(runs, waits, settings=safe, now=1070.0) is None


def failed_device(second: float):
    """A cluster whose only device failed at ``second``, and a pod that claims one."""
    world = cluster(node("a", 0), gpu_slice("a", 1), device_class(), queue("team", 8))
    world.add(claiming_job("waits", 1, queue="team"))
    world.snapshot(second)
    world.builder.avoid_device(("gpu.nvidia.com", "a", "gpu-0"), "Broken", 60.0)
    return world


def test_the_end_of_a_devices_pause_is_due_while_a_pod_waits():
    world = failed_device(1000.25)
    waits = world.snapshot(1000.5)
    assert next_deadline(waits, SETTINGS) == START + 1061
    assert not placed(world.plan(1001.0))
    assert placed(world.plan(1061.0)) == {"waits-0": "a"}
    assert next_deadline(world.snapshot(1061.0), SETTINGS) is None


def test_a_device_that_is_published_again_is_not_the_one_that_failed():
    world = failed_device(1000.0)
    assert not placed(world.plan(1001.0))
    other = gpu_slice("a", 1, product="another")
    world.add(other)
    assert not placed(world.plan(1002.0))
    world.remove(other)
    assert next_deadline(world.snapshot(1003.0), SETTINGS) is None
    world.add(gpu_slice("a", 1))
    assert placed(world.plan(1004.0)) == {"waits-0": "a"}


def test_the_end_of_a_preemption_delay_is_due():
    marks = {"kai.scheduler/queue": "q", "kai.scheduler/preemption-delay": "5m"}
    waits = document_pod("waits", gpus=9, labels=marks, annotations=marks)
    world = Documents(kai_queue("q", quota=9, limit=-1), document_node("n"), waits)
    created = datetime.fromisoformat(CREATED).timestamp()
    assert next_deadline(world.snapshot(created + 299), SETTINGS) == created + 300
    assert next_deadline(world.snapshot(created + 300), SETTINGS) is None


def test_the_time_after_which_nodes_are_reserved_is_due():
    waits = job_with_pods("waits", 4, queue="patient", created=1000.0)
    patient = queue("patient", 8, reserveAfter="90s")
    assert deadline(patient, waits, now=1001.0) == 1090
    assert deadline(patient, waits, now=1090.0) is None
