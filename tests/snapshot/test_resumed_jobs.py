"""A resumed Job keeps the nodes of its placeholders until its pods exist."""

import pytest
from msgspec.structs import replace

from kai_py.api.records.core import OwnerReference
from kai_py.api.records.job import Job, JobSpec
from kai_py.snapshot.derived_pod import AssumedBinding
from tests.snapshot.test_suspended_jobs import suspended
from tests.support.scenario import START, cluster, node, placed, pod, queue

SUSPENDED = suspended("evicted", 2)
RESUMED = Job(
    metadata=replace(SUSPENDED.metadata, annotations={"scheduling.kai.io/queue-name": "team"}),
    spec=JobSpec(parallelism=2, completions=2),
)
JOB = SUSPENDED.metadata.uid
PLACEHOLDERS = [f"{JOB}/suspended/{index}" for index in range(2)]


def member(number):
    made = pod(f"evicted-{number}", 1)
    owner = OwnerReference(
        api_version="batch/v1", kind="Job", name="evicted", uid=JOB, controller=True
    )
    return replace(made, metadata=replace(made.metadata, owner_references=(owner,)))


def resuming():
    """Nodes of two GPUs for two of three gangs; the Job is to be resumed on the first."""
    world = cluster(node("a", 2), queue("team", 8))
    world.builder.apply("jobs", None, SUSPENDED)
    (gang,) = world.plan().placements
    assert gang.resume
    for each in gang.pods:
        world.builder.assume(AssumedBinding(each.pod.uid, each.node))
    return world.add(pod("other", 2, queue="team"))


def resumed():
    world = resuming()
    world.builder.apply("jobs", SUSPENDED, RESUMED)
    return world


def test_another_gang_does_not_get_the_capacity_before_the_pods_exist():
    world = resumed()
    assert placed(world.plan()) == {}
    world.add(member(0))
    assert placed(world.plan()) == {}, "not before the other pod exists"
    world.add(member(1))
    assert placed(world.plan()) == {"evicted-0": "a", "evicted-1": "a"}


def test_pods_may_come_before_the_watch_shows_that_the_job_is_resumed():
    world = resuming().add(member(0), member(1))
    assert placed(world.plan()) == {"evicted-0": "a", "evicted-1": "a"}
    world.builder.apply("jobs", SUSPENDED, RESUMED)
    assert placed(world.plan()) == {"evicted-0": "a", "evicted-1": "a"}
    assert [len(gang.members) for gang in world.snapshot().gangs.values()] == [1, 2]


def deleted(world):
    world.builder.apply("jobs", RESUMED, None)


def suspended_by_a_user(world):
    world.builder.apply("jobs", RESUMED, replace(RESUMED, spec=replace(RESUMED.spec, suspend=True)))


def evicted(world):
    world.builder.expect_eviction(PLACEHOLDERS[0])


@pytest.mark.parametrize("end", [deleted, suspended_by_a_user, evicted])
def test_the_capacity_is_free_when_no_pods_will_come(end):
    world = resumed()
    end(world)
    assert placed(world.plan()) == {"other": "a"}


def test_a_job_is_not_waited_for_forever():
    world = resumed().add(member(0))
    assert world.snapshot(1000).next_device == START + 1300
    assert placed(world.plan(1299)) == {}
    assert placed(world.plan(1301)) == {"other": "a"}


def test_a_job_that_could_not_be_resumed_waits_on():
    world = resuming()
    for uid in PLACEHOLDERS:
        world.builder.forget(uid)
    (gang,) = world.plan().placements
    assert gang.resume or gang.gang.endswith("other")
    assert len(world.snapshot().pending) == 2


def test_a_job_that_is_suspended_again_has_its_placeholders_again():
    world = resumed().add(member(0)).remove(member(0))
    world.builder.apply("jobs", RESUMED, SUSPENDED)
    snapshot = world.snapshot()
    assert {len(gang.pending) for gang in snapshot.gangs.values()} == {1, 2}
    assert not any(member.node for gang in snapshot.gangs.values() for member in gang.members)


def test_a_pod_that_is_gone_again_is_not_counted():
    world = resumed().add(member(0)).remove(member(0)).add(member(1))
    assert placed(world.plan()) == {}
    world.add(member(2))
    assert placed(world.plan()) == {"evicted-1": "a", "evicted-2": "a"}
